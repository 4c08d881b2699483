//! Texts cut to what a person or a proposer will read.

/// Lines kept of an error (CA-55).
pub const ERROR_LINES: usize = 40;
/// Characters kept of a value, of an id in a list, and of each side of a difference (CA-55).
pub const VALUE_CHARACTERS: usize = 1500;

/// Forty lines of any length are no bound.
const ERROR_CHARACTERS: usize = 16 << 10;
/// What is shown before the place where two texts part.
const CONTEXT_CHARACTERS: usize = 300;

/// The last lines of an error.
pub(super) fn last_lines(text: &str) -> String {
    let text = text.trim_end();
    let lines = text.lines().count();
    let kept: Vec<_> = text
        .lines()
        .skip(lines.saturating_sub(ERROR_LINES))
        .collect();
    let kept = kept.join("\n");
    match kept.char_indices().rev().nth(ERROR_CHARACTERS - 1) {
        Some((at, _)) if at > 0 => format!("…{}", &kept[at..]),
        _ => kept,
    }
}

/// The beginning of a text, marked where it was cut.
pub(super) fn clipped(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARACTERS) {
        None => text.to_owned(),
        Some((end, _)) => {
            let (last, _) = text[..end].char_indices().next_back().expect("not empty");
            format!("{}…", &text[..last])
        }
    }
}

/// Two texts, each cut to what is around the place where they part.
pub(super) fn parting(one: &str, other: &str) -> (String, String) {
    let same = one
        .char_indices()
        .zip(other.chars())
        .find_map(|((at, a), b)| (a != b).then_some(at))
        .unwrap_or(one.len().min(other.len()));
    let before = one[..same].char_indices().rev().nth(CONTEXT_CHARACTERS - 1);
    let start = match before {
        // Short texts are shown whole.
        Some((at, _)) if one.len().max(other.len()) > VALUE_CHARACTERS => at,
        _ => 0,
    };
    let shown = |text: &str| match start {
        0 => clipped(text),
        start => clipped(&format!("…{}", &text[start..])),
    };
    (shown(one), shown(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CA-55
    #[test]
    fn an_error_keeps_its_last_forty_lines() {
        let lines: Vec<_> = (0..50).map(|line| line.to_string()).collect();
        let kept = last_lines(&(lines.join("\n") + "\n\n"));
        assert_eq!(kept, lines[10..].join("\n"));
        assert_eq!(last_lines(""), "");
        let long = last_lines(&"é".repeat(ERROR_CHARACTERS + 5));
        assert_eq!(long.chars().count(), ERROR_CHARACTERS + 1);
        assert_eq!(
            last_lines(&"é".repeat(ERROR_CHARACTERS)).chars().next(),
            Some('é')
        );
    }

    /// CA-55
    #[test]
    fn a_value_has_at_most_1500_characters() {
        let whole = "é".repeat(VALUE_CHARACTERS);
        assert_eq!(clipped(&whole), whole);
        let cut = clipped(&(whole + "x"));
        assert_eq!(cut.chars().count(), VALUE_CHARACTERS);
        assert!(cut.ends_with("é…"));
    }

    /// CA-55
    #[test]
    fn long_texts_are_shown_from_shortly_before_they_part() {
        let common = "é".repeat(5000);
        let (one, other) = parting(&format!("{common}a tail"), &format!("{common}b"));
        assert_eq!(one, format!("…{}a tail", "é".repeat(CONTEXT_CHARACTERS)));
        assert_eq!(other, format!("…{}b", "é".repeat(CONTEXT_CHARACTERS)));
        assert_eq!(parting("", "b"), (String::new(), "b".to_owned()));
        assert_eq!(parting("ab", "a"), ("ab".to_owned(), "a".to_owned()));
        let (whole, cut) = parting(&common, &common[..2000]);
        assert!(whole.chars().count() <= VALUE_CHARACTERS && cut.ends_with('é'));
    }
}
