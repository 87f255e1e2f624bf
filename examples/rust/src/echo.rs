//! Streams back what it is told.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::sleep;
use unicode_segmentation::UnicodeSegmentation;

use crate::run::{Failure, Finish, Run};

/// Larger messages are left to the host, which completes them from the pieces.
const MESSAGE_BYTES: usize = 1_000_000;
/// How many characters a piece of a text without spaces has.
const PIECE_CHARACTERS: usize = 12;
/// A character that has more, by marks upon marks, is cut all the same.
const CHARACTER_BYTES: usize = 4096;

#[derive(Deserialize)]
#[serde(default)]
struct Config {
    delay_seconds: f64,
    interval_seconds: f64,
    repeat: usize,
    size: usize,
    message: bool,
    failure: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            delay_seconds: 0.0,
            interval_seconds: 0.0,
            repeat: 0,
            size: 6,
            message: true,
            failure: "none".to_owned(),
        }
    }
}

/// Sends the input's pieces, then the message; or what the configuration asks for.
pub async fn answer(run: &Run) -> Result<Finish, Failure> {
    let config: Config = run.config()?;
    pause(config.delay_seconds).await;
    if config.failure == "error" {
        run.delta("Before the fault. ").await?;
        return Err(Failure {
            retryable: true,
            ..Failure::new("echo.asked", "the configuration asks for a failure")
        });
    }
    let bytes = if config.repeat > 0 {
        let piece = "x".repeat(config.size);
        for _ in 0..config.repeat {
            run.delta(piece.as_str()).await?;
            pause(config.interval_seconds).await;
        }
        config.repeat.saturating_mul(config.size)
    } else {
        let heard = heard(run);
        for piece in pieces(&heard) {
            run.delta(piece).await?;
            pause(config.interval_seconds).await;
        }
        heard.len()
    };
    if bytes == 0 {
        // Nothing was said, and nothing is what an echo has to say.
        return Ok("silent");
    }
    if config.message && bytes <= MESSAGE_BYTES {
        run.reply(if config.repeat > 0 {
            "x".repeat(bytes)
        } else {
            heard(run)
        })
        .await?;
    }
    Ok("stop")
}

/// What was said, or for events without text what happened.
fn heard(run: &Run) -> String {
    match (run.text(), &run.context.event) {
        (Some(text), _) => text.to_owned(),
        (None, event) => {
            let kind = event.as_ref().map_or("", |event| event.r#type.as_str());
            format!("Event {kind}, without text.")
        }
    }
}

async fn pause(seconds: f64) {
    if seconds > 0.0 {
        sleep(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)).await;
    }
}

/// Cuts a text into its words, each with the space behind it, and long words into several pieces.
/// No cut falls inside what a reader sees as one character.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let end = first_piece(rest)?;
        let (piece, further) = rest.split_at(end);
        rest = further;
        Some(piece)
    })
}

fn first_piece(text: &str) -> Option<usize> {
    let mut after_space = false;
    for (count, (start, character)) in text.grapheme_indices(true).enumerate() {
        let is_space = character.starts_with(char::is_whitespace);
        if count > 0 && (after_space && !is_space || count >= PIECE_CHARACTERS) {
            return Some(start);
        }
        if character.len() > CHARACTER_BYTES {
            return Some(text.floor_char_boundary(start + CHARACTER_BYTES));
        }
        after_space = is_space;
    }
    (!text.is_empty()).then_some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        pieces(text).collect()
    }

    #[test]
    fn words_leave_with_the_space_behind_them() {
        assert_eq!(cut("one  two\nthree"), ["one  ", "two\n", "three"]);
        assert_eq!(cut(""), Vec::<&str>::new());
    }

    #[test]
    fn no_cut_falls_inside_what_is_seen_as_one_character() {
        let family = "👨‍👩‍👧‍👦";
        assert_eq!(cut(&family.repeat(13)), [&family.repeat(12), family]);
        assert_eq!(cut("e\u{301} a"), ["e\u{301} ", "a"]);
        assert_eq!(cut("\r\n\r\n"), ["\r\n\r\n"]);
    }

    #[test]
    fn a_character_without_end_is_cut_all_the_same() {
        let text = format!("e{}", "\u{301}".repeat(100_000));
        let pieces = cut(&text);
        assert!(pieces.iter().all(|piece| piece.len() <= CHARACTER_BYTES));
        assert_eq!(pieces.concat(), text);
    }
}
