//! Whether to try again, and when. Pure, but for the chance that keeps clients apart.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::Duration;

use super::super::answer::FailureKind;
use super::exchange::{Exchange, Response};

/// What a response calls for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// It is to be read.
    Read,
    /// Another try may do better, after so long if the server says.
    TryAgain { why: String, wait: Option<Duration> },
    /// No other try would.
    End(FailureKind, String),
}

pub(super) fn reaction(exchange: &Exchange) -> Reaction {
    let response = match exchange {
        Exchange::Response(response) => response,
        Exchange::Broken(why) => {
            let why = format!("the server cannot be reached or broke off: {why}");
            return Reaction::TryAgain { why, wait: None };
        }
    };
    let why = format!("the server answered {}{}", response.status, said(response));
    match response.status {
        200..=299 => Reaction::Read,
        408 | 409 | 429 | 500..=599 => Reaction::TryAgain {
            why,
            wait: asked_to_wait(response),
        },
        401 | 403 | 404 => Reaction::End(FailureKind::ProposerDead, why),
        _ => Reaction::End(FailureKind::Lost, why),
    }
}

/// The beginning of what it said with it, on one line.
fn said(response: &Response) -> String {
    if let Some(location) = &response.location {
        return format!(", leading to `{location}`, which is not followed");
    }
    let text = String::from_utf8_lossy(&response.body[..response.body.len().min(600)]);
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.is_empty() {
        true => String::new(),
        false => format!(
            ": {}",
            words.join(" ").chars().take(300).collect::<String>()
        ),
    }
}

/// `Retry-After` in seconds, or as a date. A date is compared with the server's own, so that no clock has to be right.
fn asked_to_wait(response: &Response) -> Option<Duration> {
    let text = response.retry_after.as_deref()?;
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let (then, now) = (http_date(text)?, http_date(response.date.as_deref()?)?);
    Some(Duration::from_secs(then.saturating_sub(now)))
}

/// Seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that servers may write.
fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (_, text) = text.split_once(", ")?;
    let [day, month, year, time, "GMT"] = text.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let month = MONTHS.iter().position(|name| *name == month)? as u64;
    let (day, year): (u64, u64) = (day.parse().ok()?, year.parse().ok()?);
    let [hours, minutes, seconds] = time.split(':').collect::<Vec<_>>()[..] else {
        return None;
    };
    let (hours, minutes, seconds): (u64, u64, u64) = (
        hours.parse().ok()?,
        minutes.parse().ok()?,
        seconds.parse().ok()?,
    );
    if !(1970..=9999).contains(&year)
        || !(1..=31).contains(&day)
        || hours > 23
        || minutes > 59
        || seconds > 60
    {
        return None;
    }
    // Years begin in March here, so that a leap day is the last of its year.
    let (year, month) = if month < 2 {
        (year - 1, month + 10)
    } else {
        (year, month - 2)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let days = days.checked_sub(719_468)?;
    Some(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
}

/// How long waits grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) first: Duration,
    pub(super) most: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            most: Duration::from_secs(30),
        }
    }
}

impl Pace {
    /// After so many tries, a wait twice as long as the last, less up to half of it by chance.
    pub(super) fn wait(&self, tried: u32) -> Duration {
        let doubled = self
            .first
            .saturating_mul(1_u32.checked_shl(tried - 1).unwrap_or(u32::MAX));
        let chance = RandomState::new().hash_one(tried) as f64 / u64::MAX as f64;
        doubled.min(self.most).mul_f64(1.0 - chance / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, headers: [Option<&str>; 2]) -> Exchange {
        let [retry_after, date] = headers.map(|text| text.map(str::to_owned));
        Exchange::Response(Response {
            status,
            retry_after,
            date,
            ..Response::default()
        })
    }

    /// CA-85
    #[test]
    fn what_may_pass_is_tried_again_and_what_will_not_is_the_end() {
        for status in [408, 409, 429, 500, 502, 503, 504, 529] {
            let reaction = reaction(&response(status, [None, None]));
            assert!(
                matches!(reaction, Reaction::TryAgain { wait: None, .. }),
                "{status}"
            );
        }
        for status in [401, 403, 404] {
            let reaction = reaction(&response(status, [None, None]));
            assert!(
                matches!(reaction, Reaction::End(FailureKind::ProposerDead, _)),
                "{status}"
            );
        }
        for status in [301, 307, 400, 413, 422] {
            let reaction = reaction(&response(status, [None, None]));
            assert!(
                matches!(reaction, Reaction::End(FailureKind::Lost, _)),
                "{status}"
            );
        }
        assert_eq!(reaction(&response(200, [None, None])), Reaction::Read);
        let broken = Exchange::Broken("connection refused".to_owned());
        assert!(matches!(reaction(&broken), Reaction::TryAgain { .. }));
    }

    /// CA-85
    #[test]
    fn a_server_says_how_long_to_wait_in_seconds_or_by_date() {
        let wait = |headers| match reaction(&response(429, headers)) {
            Reaction::TryAgain { wait, .. } => wait.map(|wait| wait.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(wait([Some("7"), None]), Some(7));
        let date = "Wed, 21 Oct 2015 07:28:00 GMT";
        assert_eq!(
            wait([Some("Wed, 21 Oct 2015 07:29:30 GMT"), Some(date)]),
            Some(90)
        );
        assert_eq!(
            wait([Some("Wed, 21 Oct 2015 07:27:00 GMT"), Some(date)]),
            Some(0)
        );
        assert_eq!(wait([Some("Wed, 21 Oct 2015 07:29:30 GMT"), None]), None);
        for odd in [
            "-1",
            "soon",
            "",
            "1.5",
            "Wed, 99 Oct 2015 07:29:30 GMT",
            "Wed, 1 Foo 2015 07:29:30 GMT",
        ] {
            assert_eq!(wait([Some(odd), Some(date)]), None, "{odd}");
        }
    }

    #[test]
    fn dates_are_seconds_since_1970() {
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(
            http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            Some(784_111_777)
        );
        assert_eq!(
            http_date("Thu, 29 Feb 2024 12:00:00 GMT"),
            Some(1_709_208_000)
        );
    }

    /// CA-85
    #[test]
    fn waits_double_up_to_a_bound_and_are_not_all_alike() {
        let pace = Pace::default();
        for (tried, longest_ms) in [(1, 500), (2, 1000), (3, 2000), (7, 30_000), (40, 30_000)] {
            let longest = Duration::from_millis(longest_ms);
            let waits: Vec<_> = (0..20).map(|_| pace.wait(tried)).collect();
            assert!(
                waits
                    .iter()
                    .all(|wait| (longest / 2..=longest).contains(wait)),
                "{waits:?}"
            );
            assert!(waits.iter().any(|wait| *wait != waits[0]));
        }
    }
}
