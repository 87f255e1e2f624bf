//! Reads messages of the contract and writes them again, a line each: `NAME hex BYTES` becomes
//! `BYTES`. The tests use it to compare this language's bytes with those of others.

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

use prost::Message;
use runmesh_example::contract;

macro_rules! again {
    ($name:expr, $data:expr, $($message:ident,)*) => {
        match $name {
            "google.rpc.Status" => rewritten::<tonic_types::Status>($data),
            $(concat!("runmesh.v1.", stringify!($message)) => rewritten::<contract::$message>($data),)*
            unknown => Err(format!("there is no {unknown}").into()),
        }
    };
}

fn rewritten<M: Message + Default>(data: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    Ok(M::decode(data)?.encode_to_vec())
}

#[rustfmt::skip]
fn again(line: &str) -> Result<String, Box<dyn Error>> {
    let (name, content) = line.split_once(" hex ").ok_or("expected NAME hex BYTES")?;
    let data = (0..content.len() / 2)
        .map(|place| u8::from_str_radix(&content[2 * place..2 * place + 2], 16))
        .collect::<Result<Vec<u8>, _>>()?;
    let written = again!(
        name, &data,
        AcknowledgeSteeringRequest, AcknowledgeSteeringResponse, ActionRequested, Actor,
        AgentResources, ArtifactCreated, ArtifactHeader, ArtifactRef, AttachCancel,
        AttachCredit, AttachHealth, AttachHello, AttachInterruptAnswer, AttachRequest,
        AttachResponse, AttachResults, AttachRunEnded, AttachWelcome, AvailableApis,
        CallToolRequest, CallToolResponse, CancelRunRequest, CancelRunResponse, ChatMessage,
        ConfigBounds, ConfigCondition, ConfigField, ConfigOption, ContentPart,
        ContextAccess, ContextPolicy, Conversation, CreateArtifactRequest,
        CreateArtifactResponse, DeleteStateRequest, DeleteStateResponse,
        DeleteStorageRequest, DeleteStorageResponse, DeliveryContext, DispatchRequest,
        DispatchResponse, EmbedTextsRequest, EmbedTextsResponse, Embedding, EventContext,
        EventEnvelope, EventInput, FileResource, GatewayServiceCreateArtifactRequest,
        GatewayServiceCreateArtifactResponse, GatewayServiceReadArtifactRequest,
        GatewayServiceReadArtifactResponse, GetArtifactMetadataRequest,
        GetArtifactMetadataResponse, GetEventRequest, GetEventResponse, GetPromptRequest,
        GetPromptResponse, GetRunRequest, GetRunResponse, GetStateRequest, GetStateResponse,
        GetStorageRequest, GetStorageResponse, GetToolDetailRequest, GetToolDetailResponse,
        HandshakeRequest, HandshakeResponse, HostAccess, InlineContent, InlinePolicy,
        InterruptRequest, InterruptResponse, InvokeModelRequest, InvokeModelResponse,
        KnowledgeBase, KnowledgeBaseResource, KnowledgeHit, ListKnowledgeBasesRequest,
        ListKnowledgeBasesResponse, ListRunnersRequest, ListRunnersResponse,
        ListRunsRequest, ListRunsResponse, ListStateRequest, ListStateResponse,
        ListStorageRequest, ListStorageResponse, LocalizedText, LogLine, ManifestFault,
        MessageCompleted, MessageDelta, ModelDelta, ModelEnd, ModelResource,
        PageConversationRequest, PageConversationResponse, PageEventsRequest,
        PageEventsResponse, PageHistoryRequest, PageHistoryResponse, PlatformContent,
        PromptFragment, PullSteeringRequest, PullSteeringResponse, RankedDocument,
        RawEventRef, ReadArtifactRequest, ReadArtifactResponse, RequestActionRequest,
        RequestActionResponse, RerankDocumentsRequest, RerankDocumentsResponse, ResultBatch,
        RetrieveKnowledgeRequest, RetrieveKnowledgeResponse, Run, RunCompleted, RunContext,
        RunFailed, RunFailure, RunRequest, RunResponse, RunResult, RunWarning,
        RunnerCapabilities, RunnerInstance, RunnerManifest, RunnerPermissions,
        RuntimeContext, SearchHistoryRequest, SearchHistoryResponse, SetStateRequest,
        SetStateResponse, SetStorageRequest, SetStorageResponse, SkillResource, StateEntry,
        StateSnapshot, StateUpdated, StaticRef, StorageEntry, StreamArtifactRequest,
        StreamArtifactResponse, StreamModelRequest, StreamModelResponse, Subject,
        SubmitEventRequest, SubmitEventResponse, TokenUsage, ToolCall, ToolCallCompleted,
        ToolCallFragment, ToolCallStarted, ToolDefinition, ToolResource, TranscriptItem,
        Trigger, UrlContent, UsageReported, WatchRunRequest, WatchRunResponse,
    )?;
    Ok(written.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut out = stdout().lock();
    for line in stdin().lock().lines() {
        let answer = again(&line?).unwrap_or_else(|error| format!("! {error}"));
        writeln!(out, "{answer}")?;
    }
    Ok(())
}
