//! The server around the service, and its end.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpIncoming};
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, health_reporter};

use crate::contract;
use crate::contract::discovery_service_server::DiscoveryServiceServer;
use crate::contract::run_service_server::RunServiceServer;
use crate::host::MESSAGE_BYTES;
use crate::listener::Listener;
use crate::service::Service;

/// The services, as health and reflection name them; empty: the process as a whole.
const SERVICES: [&str; 3] = ["", "runmesh.v1.DiscoveryService", "runmesh.v1.RunService"];
/// What cancelled runs get to say so.
const CLEANUP: Duration = Duration::from_secs(1);
/// What the last frames get to leave.
const FLUSH: Duration = Duration::from_millis(300);

/// What ends the process.
#[derive(Clone, Default)]
pub struct Stop {
    /// Takes no more runs, and ends when those under way have.
    pub drain: CancellationToken,
    /// Beside it: waits for none of them.
    pub hurry: CancellationToken,
}

/// Serves until it is told to stop; runs under way get the grace to end.
pub async fn serve(
    listener: Listener,
    stop: Stop,
    grace: Duration,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    match listener {
        Listener::Unix(listener, _file) => {
            serve_on(UnixListenerStream::new(listener), stop, grace).await
        }
        Listener::Tcp(listener) => {
            serve_on(
                TcpIncoming::from(listener).with_nodelay(Some(true)),
                stop,
                grace,
            )
            .await
        }
    }
}

async fn serve_on<I, C>(
    incoming: I,
    stop: Stop,
    grace: Duration,
) -> Result<(), Box<dyn Error + Send + Sync>>
where
    I: Stream<Item = std::io::Result<C>> + Send + 'static,
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let service = Arc::new(Service::default());
    let (health, health_service) = health_reporter();
    report(&health, ServingStatus::Serving).await;
    let closing = CancellationToken::new();
    let server = Server::builder()
        // A host may cancel many runs at once: that is no attack.
        .http2_max_pending_accept_reset_streams(Some(4096))
        .add_service(
            DiscoveryServiceServer::new(Arc::clone(&service))
                .max_decoding_message_size(MESSAGE_BYTES),
        )
        .add_service(
            RunServiceServer::new(Arc::clone(&service)).max_decoding_message_size(MESSAGE_BYTES),
        )
        .add_service(health_service)
        .add_service(reflection().build_v1()?)
        .add_service(reflection().build_v1alpha()?)
        // A connection that breaks while it is accepted is no end of the others.
        .serve_with_incoming_shutdown(
            incoming.filter(Result::is_ok),
            closing.clone().cancelled_owned(),
        );
    let mut server = tokio::spawn(server);
    tokio::select! {
        ended = &mut server => return Ok(ended??),
        () = stop.drain.cancelled() => {}
    }
    report(&health, ServingStatus::NotServing).await;
    service.drain();
    tokio::select! {
        () = service.idle() => {}
        () = sleep(grace) => {}
        () = stop.hurry.cancelled() => {}
    }
    service.shut_down();
    let _ = timeout(CLEANUP, service.idle()).await;
    closing.cancel();
    match timeout(FLUSH, server).await {
        Ok(ended) => Ok(ended??),
        // Somebody watches health, or does not read: the end of the process ends that too.
        Err(_) => Ok(()),
    }
}

async fn report(health: &HealthReporter, status: ServingStatus) {
    for name in SERVICES {
        health.set_service_status(name, status).await;
    }
}

fn reflection<'a>() -> tonic_reflection::server::Builder<'a> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(contract::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection")
        .with_service_name("grpc.reflection.v1alpha.ServerReflection")
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET)
        .include_reflection_service(false);
    SERVICES
        .iter()
        .filter(|name| !name.is_empty())
        .fold(builder, |builder, name| builder.with_service_name(*name))
}
