//! A run, as its runner sees it, and how it ends.

use std::collections::HashMap;
use std::future::pending;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::contract::run_result::Payload;
use crate::contract::{
    ChatMessage, ChatRole, ContentPart, MessageCompleted, MessageDelta, RunCompleted, RunContext,
    RunFailed, content_part,
};
use crate::host::{Calls, HostError};
use crate::outbox::Outbox;
use crate::{desk, echo};

/// Why a run failed; it becomes the run's `run_failed`.
#[derive(Debug, Default, PartialEq)]
pub struct Failure {
    pub code: String,
    pub message: String,
    pub retryable: bool,
    pub details: HashMap<String, String>,
}

impl Failure {
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.into(),
            ..Self::default()
        }
    }
}

/// How a run ended well: its finish reason.
pub type Finish = &'static str;

/// The process's runners.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Runner {
    Echo,
    Desk,
}

impl Runner {
    async fn answer(self, run: &Run) -> Result<Finish, Failure> {
        match self {
            Self::Echo => echo::answer(run).await,
            Self::Desk => desk::answer(run).await,
        }
    }
}

/// One execution: what it was handed, and where its results go.
pub struct Run {
    pub context: RunContext,
    pub outbox: Outbox,
    pub host: Result<Calls, HostError>,
}

impl Run {
    /// What was said; `None` where nothing was, which is not the same as an empty text.
    pub fn text(&self) -> Option<&str> {
        self.context.input.as_ref()?.text.as_deref()
    }

    /// The agent's configuration.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let text = match self.context.config_json.as_str() {
            "" => "{}",
            given => given,
        };
        serde_json::from_str(text)
            .map_err(|error| Failure::new("runner.error", format!("the configuration: {error}")))
    }

    /// Calls to the run's own host.
    pub fn host(&self) -> Result<Calls, HostError> {
        self.host.clone()
    }

    pub async fn send(&self, payload: Payload) -> Result<(), Failure> {
        self.outbox.send(payload).await
    }

    /// Says a piece of the message.
    pub async fn delta(&self, text: impl Into<String>) -> Result<(), Failure> {
        self.send(Payload::MessageDelta(MessageDelta {
            text: text.into(),
            ..Default::default()
        }))
        .await
    }

    /// Says a whole message, in place of its pieces.
    pub async fn reply(&self, text: impl Into<String>) -> Result<(), Failure> {
        let part = ContentPart {
            content: Some(content_part::Content::Text(text.into())),
        };
        let message = ChatMessage {
            role: ChatRole::Assistant.into(),
            parts: vec![part],
            ..Default::default()
        };
        self.send(Payload::MessageCompleted(MessageCompleted {
            message: Some(message),
            ..Default::default()
        }))
        .await
    }

    /// Works until the runner has answered, or something stops it: then its work is dropped where
    /// it stands, calls to the host included.
    pub async fn work(self, runner: Runner, stops: Stops) {
        let answer = AssertUnwindSafe(runner.answer(&self)).catch_unwind();
        let outcome = tokio::select! {
            biased;
            () = self.outbox.abandoned() => return,
            () = stops.interrupted.cancelled() => {
                Err(Failure::new("cancelled", "the run was interrupted"))
            }
            () = stops.shut_down.cancelled() => Err(Failure {
                retryable: true,
                ..Failure::new("runner.unavailable", "the runner's process is shutting down")
            }),
            () = reached(stops.deadline) => {
                Err(Failure::new("runner.timeout", "the run took longer than it may"))
            }
            // What the panic says is in the process's log, with its place.
            answered = answer => answered
                .unwrap_or_else(|_| Err(Failure::new("runner.error", "the runner panicked"))),
        };
        self.outbox.end(match outcome {
            Ok(finish) => Payload::RunCompleted(RunCompleted {
                finish_reason: finish.to_owned(),
                ..Default::default()
            }),
            Err(failure) => Payload::RunFailed(RunFailed {
                code: failure.code,
                message: failure.message,
                retryable: failure.retryable,
                details: failure.details,
            }),
        });
    }
}

/// What stops a run from outside; beside it, the end of the call does.
pub struct Stops {
    pub interrupted: CancellationToken,
    pub shut_down: CancellationToken,
    /// `None`: the run may take as long as it likes.
    pub deadline: Option<Instant>,
}

async fn reached(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
