//! Where a run's results wait for their reader.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use prost::Message;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tonic::Status;

use crate::contract::run_result::Payload;
use crate::contract::{RunResponse, RunResult};
use crate::run::Failure;

const RESULT_BYTES: usize = 1024 * 1024;
/// What may wait is less than a frame may hold: whatever waits goes into one.
const WAITING_BYTES: usize = 2 * RESULT_BYTES;
/// What a number, a time and the field around a result take.
const AROUND_BYTES: usize = 64;
const FRAME_RESULTS: usize = 4096;

type Waiting = (RunResult, Option<OwnedSemaphorePermit>);

/// Numbers a run's results, and holds their author back while the reader is slow.
pub struct Outbox {
    run_id: String,
    room: Arc<Semaphore>,
    last: Mutex<i64>,
    waiting: UnboundedSender<Waiting>,
}

impl Outbox {
    /// Makes an outbox, and what its reader reads; the token goes when that is read to its end.
    pub fn new(run_id: &str, token: TaskTrackerToken) -> (Self, Frames) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let outbox = Self {
            run_id: run_id.to_owned(),
            room: Arc::new(Semaphore::new(WAITING_BYTES)),
            last: Mutex::new(0),
            waiting: sender,
        };
        let frames = Frames {
            waiting: receiver,
            _token: token,
        };
        (outbox, frames)
    }

    /// Takes a result in, when there is room for it.
    pub async fn send(&self, payload: Payload) -> Result<(), Failure> {
        let result = self.result(payload);
        let size = result.encoded_len() + AROUND_BYTES;
        if size > RESULT_BYTES {
            let message = format!("a result has {size} bytes: at most {RESULT_BYTES} can be sent");
            return Err(Failure::new("runner.error", message));
        }
        let permits = u32::try_from(size).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(permits).await;
        self.put(result, room.ok());
        Ok(())
    }

    /// Says how the run ended. That needs no room.
    pub fn end(&self, payload: Payload) {
        self.put(self.result(payload), None);
    }

    /// Waits until nobody reads any more.
    pub async fn abandoned(&self) {
        self.waiting.closed().await;
    }

    fn result(&self, payload: Payload) -> RunResult {
        RunResult {
            run_id: self.run_id.clone(),
            timestamp: Some(SystemTime::now().into()),
            payload: Some(payload),
            ..Default::default()
        }
    }

    fn put(&self, mut result: RunResult, room: Option<OwnedSemaphorePermit>) {
        // Numbers leave in their order.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last += 1;
        result.sequence = *last;
        // Where nobody reads, the run is about to be dropped.
        let _ = self.waiting.send((result, room));
    }
}

/// The frames in which results leave: whatever waits, as soon as there is something.
pub struct Frames {
    waiting: UnboundedReceiver<Waiting>,
    _token: TaskTrackerToken,
}

impl Stream for Frames {
    type Item = Result<RunResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut taken = Vec::new();
        let count = ready!(self.waiting.poll_recv_many(cx, &mut taken, FRAME_RESULTS));
        let results = taken.into_iter().map(|(result, _room)| result).collect();
        Poll::Ready((count > 0).then_some(Ok(RunResponse { results })))
    }
}
