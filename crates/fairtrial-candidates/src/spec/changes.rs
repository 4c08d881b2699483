//! What differs between two evaluations (CA-96).

use serde_json::Value as Json;

use super::Spec;
use super::places::{item_path, key_path};

/// What may differ when an evaluation is gone on with.
const FREE: [&str; 2] = ["parallel", "search.budget"];

impl Spec {
    /// The paths of the keys that mean something else in `other`, in the order of the table. `parallel` and budgets may
    /// change while an evaluation goes on, and are not among them.
    #[must_use]
    pub fn changed_keys(&self, other: &Self) -> Vec<String> {
        let mut changed = Vec::new();
        compare("", &self.to_json(), &other.to_json(), &mut changed);
        changed
    }
}

fn compare(path: &str, one: &Json, other: &Json, changed: &mut Vec<String>) {
    if one == other || FREE.contains(&path) {
        return;
    }
    match (one, other) {
        (Json::Object(ones), Json::Object(others)) => {
            let added = others.keys().filter(|key| !ones.contains_key(*key));
            for key in ones.keys().chain(added) {
                let of = |entries: &serde_json::Map<_, _>| entries.get(key).cloned();
                let (one, other) = (of(ones).unwrap_or_default(), of(others).unwrap_or_default());
                compare(&key_path(path, key), &one, &other, changed);
            }
        }
        (Json::Array(ones), Json::Array(others))
            if ones.len() == others.len() && ones.iter().chain(others).all(Json::is_object) =>
        {
            for (index, (one, other)) in ones.iter().zip(others).enumerate() {
                compare(&item_path(path, index), one, other, changed);
            }
        }
        _ => changed.push(path.into()),
    }
}
