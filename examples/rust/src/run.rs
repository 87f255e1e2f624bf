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
        self.work_on(runner.answer(&self), stops).await;
    }

    async fn work_on(&self, answer: impl Future<Output = Result<Finish, Failure>>, stops: Stops) {
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
            answered = AssertUnwindSafe(answer).catch_unwind() => answered
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;
    use tokio_stream::StreamExt;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::contract::RunResult;
    use crate::outbox::Frames;

    fn run() -> (Run, Frames) {
        let (outbox, frames) = Outbox::new("r1", TaskTracker::new().token());
        let run = Run {
            context: RunContext::default(),
            outbox,
            host: Err(HostError::new("", &tonic::Status::unavailable("no host"))),
        };
        (run, frames)
    }

    fn stops() -> Stops {
        Stops {
            interrupted: CancellationToken::new(),
            shut_down: CancellationToken::new(),
            deadline: None,
        }
    }

    async fn results(frames: Frames) -> Vec<RunResult> {
        let frames: Vec<_> = frames.collect().await;
        frames
            .into_iter()
            .flat_map(|frame| frame.unwrap().results)
            .collect()
    }

    fn failure(result: &RunResult) -> &RunFailed {
        match &result.payload {
            Some(Payload::RunFailed(failed)) => failed,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_runner_that_panics_fails_its_run() {
        let (run, frames) = run();
        run.work_on(
            async {
                run.delta("before").await?;
                panic!("a fault of the runner's own")
            },
            stops(),
        )
        .await;
        drop(run);
        let results = results(frames).await;
        assert_eq!(
            results.iter().map(|r| r.sequence).collect::<Vec<_>>(),
            [1, 2]
        );
        assert_eq!(failure(&results[1]).code, "runner.error");
        assert_eq!(failure(&results[1]).message, "the runner panicked");
    }

    #[tokio::test]
    async fn an_author_is_held_back_while_nobody_reads() {
        let (run, mut frames) = run();
        let piece = "x".repeat(500_000);
        for _ in 0..4 {
            run.delta(piece.as_str()).await.unwrap();
        }
        let mut fifth = Box::pin(run.delta(piece.as_str()));
        timeout(Duration::from_millis(50), &mut fifth)
            .await
            .unwrap_err();
        let frame = frames.next().await.unwrap().unwrap();
        assert_eq!(frame.results.len(), 4);
        fifth.await.unwrap();
        assert_eq!(frames.next().await.unwrap().unwrap().results[0].sequence, 5);
    }

    #[tokio::test]
    async fn a_result_that_no_host_takes_is_an_error_of_its_author() {
        let (run, _frames) = run();
        let refused = run.delta("x".repeat(1024 * 1024)).await.unwrap_err();
        assert_eq!(refused.code, "runner.error");
    }

    #[tokio::test]
    async fn a_run_that_nobody_reads_ends() {
        let (run, frames) = run();
        drop(frames);
        let ended = run.work_on(pending(), stops());
        timeout(Duration::from_secs(10), ended).await.unwrap();
    }

    #[tokio::test]
    async fn a_run_that_is_stopped_says_why() {
        let soon = Some(Instant::now() + Duration::from_millis(10));
        for (stop, code) in [
            (
                Stops {
                    deadline: soon,
                    ..stops()
                },
                "runner.timeout",
            ),
            (stopped(|stops| stops.interrupted.cancel()), "cancelled"),
            (
                stopped(|stops| stops.shut_down.cancel()),
                "runner.unavailable",
            ),
        ] {
            let (run, frames) = run();
            run.work_on(pending(), stop).await;
            drop(run);
            assert_eq!(failure(&results(frames).await[0]).code, code);
        }
    }

    fn stopped(by: impl Fn(&Stops)) -> Stops {
        let stops = stops();
        by(&stops);
        stops
    }
}
