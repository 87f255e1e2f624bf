//! What hosts call: who is here, and runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::codegen::BoxStream;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};
use tonic_types::{ErrorDetails, StatusExt};
use uuid::Uuid;

use crate::contract::discovery_service_server::DiscoveryService;
use crate::contract::run_service_server::RunService;
use crate::contract::{
    HandshakeRequest, HandshakeResponse, InterruptRequest, InterruptResponse, ListRunnersRequest,
    ListRunnersResponse, RunRequest, RunResponse,
};
use crate::host::{DOMAIN, Hosts};
use crate::manifests::{self, PLUGIN_ID, PROTOCOL_VERSION, VERSION};
use crate::outbox::{Frames, Outbox};
use crate::run::{Run, Stops};

/// Serves the runners to any number of hosts.
pub struct Service {
    instance_id: String,
    hosts: Hosts,
    runs: Mutex<Runs>,
    /// Runs whose code, or whose stream of results, has not ended.
    working: TaskTracker,
    shut_down: CancellationToken,
}

#[derive(Default)]
struct Runs {
    draining: bool,
    active: HashMap<Uuid, Active>,
}

/// A run whose code has not ended. Two of them may have the same id, from two hosts.
#[derive(Clone)]
struct Active {
    run_id: String,
    interrupted: CancellationToken,
    ended: CancellationToken,
}

impl Default for Service {
    fn default() -> Self {
        Self {
            instance_id: Uuid::new_v4().to_string(),
            hosts: Hosts::default(),
            runs: Mutex::default(),
            working: TaskTracker::new(),
            shut_down: CancellationToken::new(),
        }
    }
}

impl Service {
    /// Takes no more runs.
    pub fn drain(&self) {
        self.runs().draining = true;
        self.working.close();
    }

    /// Waits until all runs have ended, once no more are taken.
    pub async fn idle(&self) {
        self.working.wait().await;
    }

    /// Ends all runs.
    pub fn shut_down(&self) {
        self.shut_down.cancel();
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(
        self: &Arc<Self>,
        request: RunRequest,
        metadata: &MetadataMap,
    ) -> Result<Frames, Status> {
        let runner = manifests::runner(&request.runner_id).ok_or_else(|| {
            let message = format!("{:?} is not served here", request.runner_id);
            refusal(
                Code::NotFound,
                "NOT_FOUND",
                message,
                ("resource", &request.runner_id),
            )
        })?;
        let (Some(context), Some(access)) = (request.context, request.host_access) else {
            let message = "context and host_access are required";
            return Err(refusal(
                Code::InvalidArgument,
                "INVALID_ARGUMENT",
                message,
                ("", ""),
            ));
        };
        let asked = request.timeout.and_then(|timeout| timeout.try_into().ok());
        let deadline = [asked, call_timeout(metadata)]
            .into_iter()
            .flatten()
            .min()
            .and_then(|timeout: Duration| Instant::now().checked_add(timeout));

        let mut runs = self.runs();
        if runs.draining {
            let message = "this process takes no more runs";
            let run = ("run_id", context.run_id.as_str());
            return Err(refusal(Code::Unavailable, "UNAVAILABLE", message, run));
        }
        let active = Active {
            run_id: context.run_id.clone(),
            interrupted: CancellationToken::new(),
            ended: CancellationToken::new(),
        };
        let stops = Stops {
            interrupted: active.interrupted.clone(),
            shut_down: self.shut_down.clone(),
            deadline,
        };
        let (outbox, frames) = Outbox::new(&context.run_id, self.working.token());
        let run = Run {
            outbox,
            host: self.hosts.calls(&access, metadata, deadline),
            context,
        };
        let key = Uuid::new_v4();
        runs.active.insert(key, active);
        let service = Arc::clone(self);
        self.working.spawn(async move {
            run.work(runner, stops).await;
            if let Some(active) = service.runs().active.remove(&key) {
                active.ended.cancel();
            }
        });
        Ok(frames)
    }
}

#[tonic::async_trait]
impl DiscoveryService for Arc<Service> {
    async fn handshake(
        &self,
        request: Request<HandshakeRequest>,
    ) -> Result<Response<HandshakeResponse>, Status> {
        let versions = request.into_inner().protocol_versions;
        let common = versions.iter().any(|version| version == PROTOCOL_VERSION);
        Ok(Response::new(HandshakeResponse {
            protocol_version: if common { PROTOCOL_VERSION } else { "" }.to_owned(),
            plugin_id: PLUGIN_ID.to_owned(),
            plugin_version: VERSION.to_owned(),
            sdk_language: "rust".to_owned(),
            instance_id: self.instance_id.clone(),
            ..Default::default()
        }))
    }

    async fn list_runners(
        &self,
        _: Request<ListRunnersRequest>,
    ) -> Result<Response<ListRunnersResponse>, Status> {
        Ok(Response::new(ListRunnersResponse {
            runners: manifests::manifests(),
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl RunService for Arc<Service> {
    async fn run(
        &self,
        request: Request<RunRequest>,
    ) -> Result<Response<BoxStream<RunResponse>>, Status> {
        let (metadata, _, request) = request.into_parts();
        let frames = self.start(request, &metadata)?;
        Ok(Response::new(Box::pin(frames)))
    }

    async fn interrupt(
        &self,
        request: Request<InterruptRequest>,
    ) -> Result<Response<InterruptResponse>, Status> {
        let run_id = request.into_inner().run_id;
        let found: Vec<Active> = self
            .runs()
            .active
            .values()
            .filter(|active| active.run_id == run_id)
            .cloned()
            .collect();
        for active in &found {
            active.interrupted.cancel();
        }
        join_all(found.iter().map(|active| active.ended.cancelled())).await;
        Ok(Response::new(InterruptResponse {
            was_active: !found.is_empty(),
        }))
    }
}

/// A status as the contract wants it, with its reason and what helps.
fn refusal(code: Code, reason: &str, message: impl Into<String>, fact: (&str, &str)) -> Status {
    let facts = [fact]
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect::<HashMap<_, _>>();
    let details = ErrorDetails::with_error_info(reason, DOMAIN, facts);
    Status::with_error_details(code, message, details)
}

/// What gRPC gives the call as a whole, such as `300S`: tonic ends by it only what has not begun to
/// stream.
fn call_timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number.saturating_mul(3600))),
        "M" => Some(Duration::from_secs(number.saturating_mul(60))),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timeout(text: &'static str) -> Option<Duration> {
        let mut metadata = MetadataMap::new();
        metadata.insert("grpc-timeout", text.parse().unwrap());
        call_timeout(&metadata)
    }

    #[test]
    fn the_timeout_of_a_call_is_read_in_every_unit() {
        assert_eq!(timeout("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(timeout("3M"), Some(Duration::from_secs(180)));
        assert_eq!(timeout("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(timeout("1500m"), Some(Duration::from_millis(1500)));
        assert_eq!(timeout("7u"), Some(Duration::from_micros(7)));
        assert_eq!(timeout("8n"), Some(Duration::from_nanos(8)));
        for broken in ["", "S", "5", "5x", "-5S", "5 S"] {
            assert_eq!(timeout(broken), None, "{broken:?}");
        }
        assert_eq!(call_timeout(&MetadataMap::new()), None);
    }
}
