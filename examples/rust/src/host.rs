//! Calls to the host that a run came from: with its tokens, its trace and its deadline.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::{Interceptor, interceptor::InterceptedService};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::contract::HostAccess;
use crate::contract::host_api_service_client::HostApiServiceClient;

/// The contract's domain in the details of errors.
pub const DOMAIN: &str = "runmesh";
/// What a message may have on any connection.
pub const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

/// The calls of `HostAPIService`, for one run.
pub type Calls = HostApiServiceClient<InterceptedService<Channel, OfRun>>;

/// One connection to each host that runs come from.
#[derive(Default)]
pub struct Hosts {
    channels: Mutex<HashMap<String, Channel>>,
}

impl Hosts {
    /// Returns the calls of a run; `metadata` and `deadline` are those of the run itself.
    pub fn calls(
        &self,
        access: &HostAccess,
        metadata: &MetadataMap,
        deadline: Option<Instant>,
    ) -> Result<Calls, HostError> {
        self.open(access, metadata, deadline)
            .map_err(|status| HostError::new("HostAPIService", &status))
    }

    fn open(
        &self,
        access: &HostAccess,
        metadata: &MetadataMap,
        deadline: Option<Instant>,
    ) -> Result<Calls, Status> {
        let credentials = OfRun::new(access, metadata, deadline)?;
        let channel = self.channel(&access.address)?;
        Ok(HostApiServiceClient::with_interceptor(channel, credentials)
            .max_decoding_message_size(MESSAGE_BYTES))
    }

    fn channel(&self, address: &str) -> Result<Channel, Status> {
        if address.is_empty() {
            return Err(Status::unavailable(
                "the host has no address that this runner could reach",
            ));
        }
        if !is_private(address) {
            return Err(Status::unavailable(
                "the host is on another machine, and the run's tokens would travel in the clear",
            ));
        }
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(address) {
            return Ok(channel.clone());
        }
        let channel = endpoint(address)
            .map_err(|error| Status::unavailable(format!("{address}: {error}")))?
            .connect_lazy();
        channels.insert(address.to_owned(), channel.clone());
        Ok(channel)
    }
}

/// A gRPC target as tonic takes it: `unix:/path`, or `host:port` with a scheme or without.
pub fn endpoint(address: &str) -> Result<Endpoint, tonic::transport::Error> {
    if address.starts_with("unix:") {
        return Endpoint::from_shared(address.to_owned());
    }
    Endpoint::from_shared(format!("http://{}", without_scheme(address)))
}

/// Whether an address can be reached from this machine alone.
pub fn is_private(address: &str) -> bool {
    if address.starts_with("unix:") {
        return true;
    }
    let Some((host, _port)) = without_scheme(address).rsplit_once(':') else {
        return false;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn without_scheme(address: &str) -> &str {
    ["dns:///", "dns:", "ipv4:", "ipv6:"]
        .iter()
        .find_map(|scheme| address.strip_prefix(scheme))
        .unwrap_or(address)
}

/// Puts into each call what belongs to its run.
#[derive(Clone)]
pub struct OfRun {
    entries: Vec<(&'static str, MetadataValue<Ascii>)>,
    deadline: Option<Instant>,
}

impl OfRun {
    fn new(
        access: &HostAccess,
        metadata: &MetadataMap,
        deadline: Option<Instant>,
    ) -> Result<Self, Status> {
        let mut entries = vec![
            (
                "authorization",
                secret(format!("Bearer {}", access.run_token))?,
            ),
            ("runmesh-instance", secret(access.instance_token.clone())?),
        ];
        for name in ["traceparent", "tracestate"] {
            if let Some(value) = metadata.get(name) {
                entries.push((name, value.clone()));
            }
        }
        Ok(Self { entries, deadline })
    }
}

fn secret(text: String) -> Result<MetadataValue<Ascii>, Status> {
    let mut value = MetadataValue::try_from(text)
        .map_err(|_| Status::unauthenticated("a token of the run is no metadata value"))?;
    value.set_sensitive(true);
    Ok(value)
}

impl Interceptor for OfRun {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        for (name, value) in &self.entries {
            request.metadata_mut().insert(*name, value.clone());
        }
        if let Some(deadline) = self.deadline {
            request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        }
        Ok(request)
    }
}

/// What a host, or the way to it, made of a call. Decide by its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct HostError {
    pub method: &'static str,
    /// As in the contract's `ErrorReason`, such as `NOT_FOUND`.
    pub reason: String,
    /// For people.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
}

impl HostError {
    pub fn new(method: &'static str, status: &Status) -> Self {
        let reason = match status.get_details_error_info() {
            Some(info) if info.domain == DOMAIN => info.reason,
            _ => reason_of(status.code()).to_owned(),
        };
        let retryable = status.get_details_retry_info().is_some()
            || matches!(
                reason.as_str(),
                "RATE_LIMITED" | "OVERLOADED" | "UNAVAILABLE"
            );
        Self {
            method,
            reason,
            message: status.message().to_owned(),
            retryable,
        }
    }

    /// For `map_err` behind a call.
    pub fn of(method: &'static str) -> impl Fn(Status) -> Self {
        move |status| Self::new(method, &status)
    }
}

/// What a status means that comes without details: from gRPC itself, or from something between.
fn reason_of(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => "UNAUTHENTICATED",
        Code::PermissionDenied => "UNAUTHORIZED",
        Code::NotFound => "NOT_FOUND",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::ResourceExhausted => "OVERLOADED",
        Code::FailedPrecondition => "INCOMPATIBLE",
        Code::Aborted => "CONFLICT",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::OutOfRange => "SEQUENCE_COMPACTED",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::Unimplemented => "NOT_IMPLEMENTED",
        Code::Unavailable | Code::Cancelled => "UNAVAILABLE",
        _ => "RUNTIME_ERROR",
    }
}
