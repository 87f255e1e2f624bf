//! The plugin as hosts see it: served on a socket, called by stubs, and calling a host back.

use std::collections::HashMap;
use std::env::temp_dir;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use runmesh_example::contract::content_part::Content;
use runmesh_example::contract::discovery_service_client::DiscoveryServiceClient;
use runmesh_example::contract::host_api_service_server::{HostApiService, HostApiServiceServer};
use runmesh_example::contract::run_result::Payload;
use runmesh_example::contract::run_service_client::RunServiceClient;
use runmesh_example::contract::{
    EventInput, GetStateRequest, GetStateResponse, HandshakeRequest, HostAccess, InterruptRequest,
    RunContext, RunFailed, RunRequest, RunResponse, RunResult, SetStateRequest, SetStateResponse,
    StateEntry,
};
use runmesh_example::host::endpoint;
use runmesh_example::listener::Listener;
use runmesh_example::serve::{Stop, serve};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::{ErrorDetails, StatusExt};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(30);
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn socket() -> PathBuf {
    temp_dir().join(format!("{}.sock", Uuid::new_v4()))
}

/// The plugin, served until it is told to stop.
struct Served {
    channel: Channel,
    stop: Stop,
    serving: JoinHandle<()>,
}

impl Served {
    async fn start(grace: Duration) -> Self {
        let address = format!("unix:{}", socket().display());
        let listener = Listener::bind(&address).await.unwrap();
        let stop = Stop::default();
        let told = stop.clone();
        let serving = tokio::spawn(async move { serve(listener, told, grace).await.unwrap() });
        let channel = endpoint(&address).unwrap().connect().await.unwrap();
        Self {
            channel,
            stop,
            serving,
        }
    }

    async fn run(&self, request: impl tonic::IntoRequest<RunRequest>) -> Results {
        let mut client = RunServiceClient::new(self.channel.clone());
        Results(client.run(request).await.unwrap().into_inner(), Vec::new())
    }

    async fn interrupt(&self, run_id: &str) -> bool {
        let request = InterruptRequest {
            run_id: run_id.to_owned(),
            ..Default::default()
        };
        let mut client = RunServiceClient::new(self.channel.clone());
        client
            .interrupt(request)
            .await
            .unwrap()
            .into_inner()
            .was_active
    }
}

/// What a run sends, and what it has sent.
struct Results(Streaming<RunResponse>, Vec<RunResult>);

impl Results {
    async fn first(mut self) -> Self {
        let frame = timeout(PATIENCE, self.0.message()).await.unwrap().unwrap();
        self.1.extend(frame.unwrap().results);
        self
    }

    async fn all(mut self) -> Vec<Payload> {
        while let Some(frame) = timeout(PATIENCE, self.0.message()).await.unwrap().unwrap() {
            self.1.extend(frame.results);
        }
        for (result, sequence) in self.1.iter().zip(1..) {
            assert_eq!((result.run_id.as_str(), result.sequence), ("r1", sequence));
        }
        self.1
            .into_iter()
            .map(|result| result.payload.unwrap())
            .collect()
    }

    async fn failure(self) -> RunFailed {
        match self.all().await.pop() {
            Some(Payload::RunFailed(failed)) => failed,
            other => panic!("{other:?}"),
        }
    }
}

fn asked(runner: &str, text: &str, config_json: &str) -> RunRequest {
    RunRequest {
        runner_id: format!("plugin:examples/rust/{runner}"),
        context: Some(RunContext {
            run_id: "r1".to_owned(),
            config_json: config_json.to_owned(),
            input: Some(EventInput {
                text: Some(text.to_owned()),
                ..Default::default()
            }),
            ..Default::default()
        }),
        host_access: Some(HostAccess::default()),
        ..Default::default()
    }
}

fn deltas(payloads: &[Payload]) -> Vec<&str> {
    let texts = payloads.iter().filter_map(|payload| match payload {
        Payload::MessageDelta(delta) => Some(delta.text.as_str()),
        _ => None,
    });
    texts.collect()
}

fn message(payloads: &[Payload]) -> &str {
    let found = payloads.iter().find_map(|payload| match payload {
        Payload::MessageCompleted(completed) => completed.message.as_ref(),
        _ => None,
    });
    match found.and_then(|message| message.parts[0].content.as_ref()) {
        Some(Content::Text(text)) => text,
        _ => panic!("{payloads:?}"),
    }
}

#[tokio::test]
async fn a_text_comes_back_in_pieces_and_as_a_whole() {
    let served = Served::start(PATIENCE).await;
    let text = "你好 👩‍💻 שלום, e\u{301}\n";
    let said = served.run(asked("echo", text, "{}")).await.all().await;
    assert_eq!(deltas(&said), ["你好 ", "👩‍💻 ", "שלום, ", "e\u{301}\n"]);
    assert_eq!(message(&said), text);
    assert!(matches!(said.last(), Some(Payload::RunCompleted(end)) if end.finish_reason == "stop"));
}

#[tokio::test]
async fn an_empty_text_is_answered_with_silence() {
    let served = Served::start(PATIENCE).await;
    let said = served.run(asked("echo", "", "{}")).await.all().await;
    assert!(
        matches!(said.as_slice(), [Payload::RunCompleted(end)] if end.finish_reason == "silent")
    );
}

#[tokio::test]
async fn more_than_a_message_holds_is_left_to_the_host() {
    let served = Served::start(PATIENCE).await;
    let config = r#"{"repeat": 101, "size": 10000}"#;
    let said = served.run(asked("echo", "x", config)).await.all().await;
    assert_eq!(deltas(&said).concat().len(), 1_010_000);
    assert_eq!(said.len(), 102);
}

#[tokio::test]
async fn a_failure_that_is_asked_for_comes() {
    let served = Served::start(PATIENCE).await;
    let config = r#"{"failure": "error"}"#;
    let failed = served.run(asked("echo", "x", config)).await.failure().await;
    assert_eq!(
        (failed.code.as_str(), failed.retryable),
        ("echo.asked", true)
    );
}

#[tokio::test]
async fn each_runs_configuration_is_its_own_fault() {
    let served = Served::start(PATIENCE).await;
    let failed = served.run(asked("echo", "x", "{")).await.failure().await;
    assert_eq!(failed.code, "runner.error");
}

#[tokio::test]
async fn an_interrupted_run_says_so_before_it_is_said_to_have_stopped() {
    let served = Served::start(PATIENCE).await;
    let results = served
        .run(asked("desk", "wait 600", "{}"))
        .await
        .first()
        .await;
    assert!(served.interrupt("r1").await);
    assert_eq!(results.failure().await.code, "cancelled");
    assert!(!served.interrupt("r1").await);
}

#[tokio::test]
async fn a_cancelled_call_ends_its_run() {
    let served = Served::start(PATIENCE).await;
    drop(
        served
            .run(asked("desk", "wait 600", "{}"))
            .await
            .first()
            .await,
    );
    // An interrupt of a run that goes on would end it, and say that it was under way.
    sleep(Duration::from_millis(300)).await;
    assert!(!served.interrupt("r1").await);
}

#[tokio::test]
async fn the_timeout_of_a_run_ends_it() {
    let served = Served::start(PATIENCE).await;
    let mut request = asked("desk", "wait 600", "{}");
    request.timeout = Some(Duration::from_millis(100).try_into().unwrap());
    assert_eq!(
        served.run(request).await.failure().await.code,
        "runner.timeout"
    );
}

#[tokio::test]
async fn what_is_not_served_is_refused_with_its_reason() {
    let served = Served::start(PATIENCE).await;
    let mut client = RunServiceClient::new(served.channel.clone());
    let refused = client.run(asked("other", "x", "{}")).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let info = refused.get_details_error_info().unwrap();
    assert_eq!(
        (info.domain.as_str(), info.reason.as_str()),
        ("runmesh", "NOT_FOUND")
    );
    let refused = client.run(RunRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound);
    let mut bare = asked("echo", "x", "{}");
    bare.context = None;
    assert_eq!(
        client.run(bare).await.unwrap_err().code(),
        Code::InvalidArgument
    );
}

#[tokio::test]
async fn a_host_of_another_version_is_told_so() {
    let served = Served::start(PATIENCE).await;
    let mut client = DiscoveryServiceClient::new(served.channel.clone());
    for (versions, picked) in [(vec!["2", "1"], "1"), (vec!["2"], "")] {
        let request = HandshakeRequest {
            protocol_versions: versions.into_iter().map(str::to_owned).collect(),
            ..Default::default()
        };
        let answer = client.handshake(request).await.unwrap().into_inner();
        assert_eq!(
            (answer.protocol_version.as_str(), answer.plugin_id.as_str()),
            (picked, "examples/rust")
        );
    }
}

#[tokio::test]
async fn a_draining_process_finishes_what_it_has() {
    let served = Served::start(PATIENCE).await;
    let under_way = served
        .run(asked("desk", "wait 0.5", "{}"))
        .await
        .first()
        .await;
    served.stop.drain.cancel();
    let mut health = HealthClient::new(served.channel.clone());
    let mut status = ServingStatus::Serving;
    while status != ServingStatus::NotServing {
        let answer = health.check(HealthCheckRequest::default()).await.unwrap();
        status = answer.into_inner().status();
    }
    let mut client = RunServiceClient::new(served.channel.clone());
    let mut refused = client.run(asked("echo", "x", "{}")).await;
    while refused.is_ok() {
        // Health says it a moment before.
        refused = client.run(asked("echo", "x", "{}")).await;
    }
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(
        refused.get_details_error_info().unwrap().reason,
        "UNAVAILABLE"
    );
    assert_eq!(message(&under_way.all().await), "waited 0.5 s");
    timeout(PATIENCE, served.serving).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_outlasts_the_grace_is_told_that_the_process_ends() {
    let served = Served::start(Duration::from_millis(10)).await;
    let under_way = served
        .run(asked("desk", "wait 600", "{}"))
        .await
        .first()
        .await;
    served.stop.drain.cancel();
    let failed = under_way.failure().await;
    assert_eq!(
        (failed.code.as_str(), failed.retryable),
        ("runner.unavailable", true)
    );
    timeout(PATIENCE, served.serving).await.unwrap().unwrap();
}

/// A host with one value of state, which another run changes in between for the first time.
#[derive(Clone, Default)]
struct StandIn {
    calls: Arc<Mutex<Vec<(String, MetadataMap)>>>,
}

impl StandIn {
    fn saw(&self, call: &str, metadata: &MetadataMap) -> usize {
        let mut calls = self.calls.lock().unwrap();
        calls.push((call.to_owned(), metadata.clone()));
        calls.iter().filter(|(other, _)| other == call).count()
    }
}

#[tonic::async_trait]
impl HostApiService for StandIn {
    async fn get_state(
        &self,
        request: Request<GetStateRequest>,
    ) -> Result<Response<GetStateResponse>, Status> {
        match self.saw("GetState", request.metadata()) {
            1 => Err(refusal(Code::NotFound, "NOT_FOUND")),
            _ => Ok(Response::new(GetStateResponse {
                entry: Some(StateEntry {
                    key: request.into_inner().key,
                    value_json: "9007199254740993".to_owned(),
                    version: 41,
                    ..Default::default()
                }),
            })),
        }
    }

    async fn set_state(
        &self,
        request: Request<SetStateRequest>,
    ) -> Result<Response<SetStateResponse>, Status> {
        let count = self.saw("SetState", request.metadata());
        let request = request.into_inner();
        match (count, request.value_json.as_str(), request.expected_version) {
            (1, "1", Some(0)) => Err(refusal(Code::Aborted, "CONFLICT")),
            (2, "9007199254740994", Some(41)) => {
                Ok(Response::new(SetStateResponse { version: 42 }))
            }
            other => Err(Status::internal(format!("{other:?}"))),
        }
    }
}

fn refusal(code: Code, reason: &str) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, "runmesh", HashMap::new());
    if reason == "OVERLOADED" {
        details.set_retry_info(Some(Duration::from_secs(1)));
    }
    Status::with_error_details(code, "no", details)
}

/// Asks the desk to count, on behalf of a host that is served on a socket of its own.
async fn counted(host: impl HostApiService) -> Vec<Payload> {
    let path = socket();
    let incoming = UnixListenerStream::new(UnixListener::bind(&path).unwrap());
    let router = Server::builder().add_service(HostApiServiceServer::new(host));
    let hosting = tokio::spawn(router.serve_with_incoming(incoming));
    let served = Served::start(PATIENCE).await;
    let mut run = asked("desk", "count", "{}");
    run.timeout = Some(PATIENCE.try_into().unwrap());
    run.host_access = Some(HostAccess {
        host_id: "h1".to_owned(),
        address: format!("unix:{}", path.display()),
        run_token: "run-secret".to_owned(),
        instance_token: "instance-secret".to_owned(),
    });
    let mut request = Request::new(run);
    request
        .metadata_mut()
        .insert("traceparent", TRACE.parse().unwrap());
    let said = served.run(request).await.all().await;
    hosting.abort();
    std::fs::remove_file(path).unwrap();
    said
}

#[tokio::test]
async fn a_count_is_written_again_where_another_run_was_faster() {
    let host = StandIn::default();
    let said = counted(host.clone()).await;
    assert_eq!(
        message(&said),
        "message 9007199254740994 of this conversation"
    );
    let calls = host.calls.lock().unwrap();
    assert_eq!(calls.len(), 4);
    for (call, metadata) in calls.iter() {
        let entry = |name| metadata.get(name).map(|value| value.to_str().unwrap());
        assert_eq!(entry("authorization"), Some("Bearer run-secret"), "{call}");
        assert_eq!(entry("runmesh-instance"), Some("instance-secret"), "{call}");
        assert_eq!(entry("traceparent"), Some(TRACE), "{call}");
        assert!(entry("grpc-timeout").is_some(), "{call}");
    }
}

/// A host that refuses everything.
struct Refusing(Code, &'static str);

#[tonic::async_trait]
impl HostApiService for Refusing {
    async fn get_state(
        &self,
        _: Request<GetStateRequest>,
    ) -> Result<Response<GetStateResponse>, Status> {
        Err(refusal(self.0, self.1))
    }
}

#[tokio::test]
async fn what_a_host_refuses_fails_the_run_with_its_reason() {
    for (code, reason, retryable) in [
        (Code::PermissionDenied, "UNAUTHORIZED", false),
        (Code::ResourceExhausted, "PAYLOAD_TOO_LARGE", false),
        (Code::ResourceExhausted, "OVERLOADED", true),
    ] {
        let said = counted(Refusing(code, reason)).await;
        let Some(Payload::RunFailed(failed)) = said.last() else {
            panic!("{said:?}")
        };
        assert_eq!(
            (failed.code.as_str(), failed.retryable),
            ("desk.refused", retryable)
        );
        assert_eq!(failed.message, "the host refused: no");
        assert_eq!(failed.details["method"], "GetState");
        assert_eq!(failed.details["reason"], reason);
    }
}

#[tokio::test]
async fn a_run_without_a_host_address_says_so_where_it_needs_one() {
    let served = Served::start(PATIENCE).await;
    let failed = served
        .run(asked("desk", "count", "{}"))
        .await
        .failure()
        .await;
    assert_eq!(
        (failed.code.as_str(), failed.details["reason"].as_str()),
        ("desk.refused", "UNAVAILABLE")
    );
}

#[tokio::test]
async fn tokens_do_not_travel_in_the_clear() {
    let served = Served::start(PATIENCE).await;
    let mut request = asked("desk", "count", "{}");
    request.host_access.as_mut().unwrap().address = "192.0.2.1:7443".to_owned();
    let failed = served.run(request).await.failure().await;
    assert!(
        failed.message.contains("in the clear"),
        "{}",
        failed.message
    );
}

#[tokio::test]
async fn only_this_machine_may_dial() {
    assert!(Listener::bind("0.0.0.0:0").await.is_err());
    let listener = Listener::bind("127.0.0.1:0").await.unwrap();
    assert!(!listener.address().unwrap().ends_with(":0"));
}

#[tokio::test]
async fn a_socket_that_a_killed_process_left_is_taken_over() {
    let path = socket();
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let address = format!("unix:{}", path.display());
    let listener = Listener::bind(&address).await.unwrap();
    assert!(
        Listener::bind(&address).await.is_err(),
        "one that lives is left alone"
    );
    drop(listener);
    assert!(!path.exists());
}
