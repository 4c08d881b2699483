//! What was meant by a name that is none of those there are.

/// Says that `key` is unknown at `place` (empty, or as in `` in `limits` ``), with the nearest one known, or all.
#[must_use]
pub fn unknown_key<'a>(
    key: &str,
    place: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let key = short(key);
    let nearest = known
        .clone()
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(&key, candidate), candidate))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let hint = match nearest {
        Some((likeness, candidate)) if likeness > 0.8 => format!("did you mean `{candidate}`?"),
        _ => {
            let keys: Vec<_> = known.into_iter().map(|key| format!("`{key}`")).collect();
            format!("the keys are {}", keys.join(", "))
        }
    };
    format!("unknown key `{key}`{place} ({hint})")
}

/// Enough of a key to know it by, however long it is.
fn short(key: &str) -> String {
    const LONGEST: usize = 60;
    match key.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &key[..end]),
        None => key.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EX-102
    #[test]
    fn the_nearest_key_is_named_and_else_all_of_them() {
        let known = ["read", "write"];
        let table = [
            ("raed", "unknown key `raed` (did you mean `read`?)"),
            ("zzz", "unknown key `zzz` (the keys are `read`, `write`)"),
            ("", "unknown key `` (the keys are `read`, `write`)"),
        ];
        for (key, message) in table {
            assert_eq!(unknown_key(key, "", known), message);
        }
        let long = unknown_key(&"é".repeat(500), " in `sandbox`", known);
        assert!(long.len() < 250, "{long}");
    }
}
