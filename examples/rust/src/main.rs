//! The plugin `examples/rust`: the runners echo and desk in one process.

use std::env;
use std::error::Error;
use std::os::unix::process::parent_id;
use std::time::Duration;

use runmesh_example::listener::Listener;
use runmesh_example::manifests::PLUGIN_ID;
use runmesh_example::serve::{Stop, serve};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

const GRACE: Duration = Duration::from_secs(30);
/// A host gives its child processes 5 s.
const SUPERVISED_GRACE: Duration = Duration::from_secs(3);
const PARENT_LOOK: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let stop = Stop::default();
    let supervised = env::var("RUNMESH_SUPERVISED").is_ok_and(|value| value == "1");
    if supervised {
        // Noted before anything else: a host that goes while this begins would never be missed.
        tokio::spawn(end_with_parent(parent_id(), stop.clone()));
    }
    end_on_signals(&stop)?;
    let address = env::var("RUNMESH_LISTEN").unwrap_or_else(|_| "127.0.0.1:0".to_owned());
    let listener = Listener::bind(&address).await?;
    eprintln!("{PLUGIN_ID} listens on {}", listener.address()?);
    let grace = if supervised { SUPERVISED_GRACE } else { GRACE };
    serve(listener, stop, grace).await
}

/// The first signal asks for an end, a second one for a quick one.
fn end_on_signals(stop: &Stop) -> Result<(), Box<dyn Error + Send + Sync>> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if stop.drain.is_cancelled() {
                    stop.hurry.cancel();
                }
                stop.drain.cancel();
            }
        });
    }
    Ok(())
}

/// A plugin without its host has nobody to run for.
async fn end_with_parent(parent: u32, stop: Stop) {
    while parent_id() == parent {
        sleep(PARENT_LOOK).await;
    }
    stop.hurry.cancel();
    stop.drain.cancel();
}
