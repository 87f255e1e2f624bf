//! Does what the first word of a message asks for, each with a call of its host.

use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::sleep;

use crate::contract::run_result::Payload;
use crate::contract::{
    ArtifactCreated, ArtifactHeader, CallToolRequest, CallToolResponse, ChatRole,
    CreateArtifactRequest, GetStateRequest, PageHistoryRequest, SetStateRequest, StateScope,
    ToolCallCompleted, ToolCallStarted, TranscriptItem, TranscriptKind, artifact_created,
    content_part, create_artifact_request,
};
use crate::host::HostError;
use crate::run::{Failure, Finish, Run};

const USAGE: &str = "Ask me to: count, recall, file NAME, tool NAME JSON, or wait SECONDS.";
/// How many messages `recall` recalls.
const RECALLED: usize = 5;
const PAGE_ITEMS: i32 = 50;
const CHUNK_BYTES: usize = 1024 * 1024;
const CALL_ID: &str = "desk-1";
const PREVIEW_CHARACTERS: usize = 1000;

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self {
            code: "desk.refused".to_owned(),
            message: format!("the host refused: {}", error.message),
            retryable: error.retryable,
            details: [("method", error.method), ("reason", &error.reason)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        }
    }
}

pub async fn answer(run: &Run) -> Result<Finish, Failure> {
    let (word, rest) = first_word(run.text().unwrap_or_default());
    let said = match (word, rest) {
        ("count", _) => count(run).await?,
        ("recall", _) => recall(run).await?,
        ("file", name) if !name.is_empty() => file(run, name).await?,
        ("tool", call) if !call.is_empty() => tool(run, call).await?,
        ("wait", seconds) => wait(run, seconds).await?,
        _ => USAGE.to_owned(),
    };
    run.reply(said).await?;
    Ok("stop")
}

/// Adds one to a number in the conversation's state, again where another run was faster.
async fn count(run: &Run) -> Result<String, Failure> {
    let mut host = run.host()?;
    let scope = StateScope::Conversation.into();
    let key = "count".to_owned();
    loop {
        let request = GetStateRequest {
            scope,
            key: key.clone(),
        };
        let found = host.get_state(request).await;
        let entry = match found.map_err(HostError::of("GetState")) {
            Ok(response) => response.into_inner().entry.unwrap_or_default(),
            // The first message. Version 0, of an entry that is not there, is that of no value.
            Err(error) if error.reason == "NOT_FOUND" => Default::default(),
            Err(error) => return Err(error.into()),
        };
        let number = match entry.version {
            0 => 1,
            _ => 1 + parsed(&entry.value_json)?,
        };
        let request = SetStateRequest {
            scope,
            key: key.clone(),
            value_json: number.to_string(),
            expected_version: Some(entry.version),
        };
        let written = host.set_state(request).await;
        match written.map_err(HostError::of("SetState")) {
            Ok(_) => return Ok(format!("message {number} of this conversation")),
            Err(error) if error.reason == "CONFLICT" => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn parsed(value_json: &str) -> Result<i64, Failure> {
    serde_json::from_str(value_json)
        .map_err(|error| Failure::new("desk.state", format!("count is no number: {error}")))
}

async fn recall(run: &Run) -> Result<String, Failure> {
    transcript(run, Some(RECALLED)).await
}

/// Stores the conversation so far as an artifact.
async fn file(run: &Run, name: &str) -> Result<String, Failure> {
    let content = transcript(run, None).await?.into_bytes();
    let size = content.len();
    let digest = Sha256::digest(&content);
    let header = ArtifactHeader {
        r#type: "file".to_owned(),
        mime_type: "text/plain; charset=utf-8".to_owned(),
        name: name.to_owned(),
        size_bytes: i64::try_from(size).ok(),
        sha256: Some(digest.to_vec()),
        ..Default::default()
    };
    let chunks: Vec<Vec<u8>> = content.chunks(CHUNK_BYTES).map(<[u8]>::to_vec).collect();
    let requests = [create_artifact_request::Item::Header(header)]
        .into_iter()
        .chain(chunks.into_iter().map(create_artifact_request::Item::Chunk))
        .map(|item| CreateArtifactRequest { item: Some(item) });
    let stored = run
        .host()?
        .create_artifact(tokio_stream::iter(requests))
        .await
        .map_err(HostError::of("CreateArtifact"))?
        .into_inner();
    run.send(Payload::ArtifactCreated(ArtifactCreated {
        artifact: stored.artifact.map(artifact_created::Artifact::Ref),
        ..Default::default()
    }))
    .await?;
    Ok(format!("{name}, {size} bytes, sha256 {}", hex(&digest)))
}

/// Writes the conversation's last messages, or all of them, oldest first.
async fn transcript(run: &Run, most: Option<usize>) -> Result<String, Failure> {
    let mut host = run.host()?;
    let mut lines = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = PageHistoryRequest {
            page_size: PAGE_ITEMS,
            page_token,
            ..Default::default()
        };
        let page = host
            .page_history(request)
            .await
            .map_err(HostError::of("PageHistory"))?
            .into_inner();
        let messages = page
            .items
            .iter()
            .filter(|item| item.kind() == TranscriptKind::Message);
        lines.extend(messages.map(line));
        page_token = page.next_page_token;
        if page_token.is_empty() || most.is_some_and(|most| lines.len() >= most) {
            break;
        }
    }
    lines.truncate(most.unwrap_or(usize::MAX));
    lines.reverse();
    Ok(match lines.as_slice() {
        [] => "nothing yet".to_owned(),
        lines => lines.join("\n"),
    })
}

fn line(item: &TranscriptItem) -> String {
    let role = match item.role() {
        ChatRole::User => "user",
        ChatRole::Assistant => "assistant",
        ChatRole::System => "system",
        ChatRole::Tool => "tool",
        ChatRole::Unspecified => "unspecified",
    };
    format!("{role}: {}", item.text())
}

/// Calls a tool with a text of JSON, as it is.
async fn tool(run: &Run, call: &str) -> Result<String, Failure> {
    let (name, given) = first_word(call);
    let parameters_json = if given.is_empty() { "{}" } else { given };
    let mut started = ToolCallStarted {
        call_id: CALL_ID.to_owned(),
        tool_name: name.to_owned(),
        ..Default::default()
    };
    if serde_json::from_str::<serde::de::IgnoredAny>(parameters_json).is_ok() {
        started.parameters_json = Some(parameters_json.to_owned());
    } else {
        // The host says what is wrong with it.
        started.preview = parameters_json.to_owned();
    }
    run.send(Payload::ToolCallStarted(started)).await?;
    let request = CallToolRequest {
        tool_name: name.to_owned(),
        parameters_json: parameters_json.to_owned(),
        call_id: CALL_ID.to_owned(),
    };
    let answer = run
        .host()?
        .call_tool(request)
        .await
        .map_err(HostError::of("CallTool"))?
        .into_inner();
    let text = tool_text(&answer);
    let mut completed = ToolCallCompleted {
        call_id: CALL_ID.to_owned(),
        tool_name: name.to_owned(),
        ..Default::default()
    };
    let preview = text.chars().take(PREVIEW_CHARACTERS).collect();
    if answer.is_error {
        completed.error_code = "failed".to_owned();
        completed.error_message = preview;
    } else {
        completed.preview = preview;
    }
    run.send(Payload::ToolCallCompleted(completed)).await?;
    Ok(match answer.is_error {
        true => format!("{name} failed: {text}"),
        false => text,
    })
}

/// What a tool answered, as text.
fn tool_text(answer: &CallToolResponse) -> String {
    let texts = answer.parts.iter().filter_map(|part| match &part.content {
        Some(content_part::Content::Text(text)) if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    let said = texts.collect::<Vec<_>>().join("\n");
    [&said, answer.result_json(), &answer.preview, "(no text)"]
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default()
        .to_owned()
}

/// Says at once that it waits, and after a time that it has.
async fn wait(run: &Run, text: &str) -> Result<String, Failure> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..1e6).contains(&seconds) => {
            run.delta("waiting").await?;
            sleep(Duration::from_secs_f64(seconds)).await;
            Ok(format!("waited {text} s"))
        }
        _ => Ok(USAGE.to_owned()),
    }
}

fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::ContentPart;

    fn text_part(text: &str) -> ContentPart {
        ContentPart {
            content: Some(content_part::Content::Text(text.to_owned())),
        }
    }

    #[test]
    fn the_rest_of_a_message_stays_as_it_is() {
        assert_eq!(first_word(" file  a  b "), ("file", "a  b"));
        assert_eq!(first_word("count"), ("count", ""));
        assert_eq!(first_word(""), ("", ""));
    }

    #[test]
    fn a_tool_without_text_is_told_by_the_next_best() {
        let mut answer = CallToolResponse {
            preview: "a table".to_owned(),
            ..Default::default()
        };
        assert_eq!(tool_text(&answer), "a table");
        answer.result_json = Some("9007199254740993".to_owned());
        assert_eq!(tool_text(&answer), "9007199254740993");
        answer.parts = vec![text_part("one"), ContentPart::default(), text_part("two")];
        assert_eq!(tool_text(&answer), "one\ntwo");
        assert_eq!(tool_text(&CallToolResponse::default()), "(no text)");
    }

    #[test]
    fn a_count_beyond_a_double_keeps_its_digits() {
        assert_eq!(parsed("9007199254740993").unwrap(), 9_007_199_254_740_993);
        assert_eq!(parsed("\"7\"").unwrap_err().code, "desk.state");
    }
}
