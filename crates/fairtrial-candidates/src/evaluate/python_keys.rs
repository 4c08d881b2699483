//! Python asked which files are the same program (CA-17). Our own code on candidates' text, which it only parses.

use std::time::Duration;

use fairtrial_exec::value::{Value, decode_tree, encode};
use fairtrial_exec::{Backend, Call};

use crate::stage::{PYTHON_KEY_FUNCTION, PYTHON_KEY_SOURCE, PythonKeys};

/// So many bytes of files go into one call: one that cannot be answered costs the others little.
const BATCH_BYTES: usize = 4 << 20;

/// For a batch; a text that takes longer to parse keeps its exact text as its key.
const PATIENCE: Duration = Duration::from_secs(30);

/// Learns the keys of `texts`. What Python does not answer keeps its text; the first reason is given.
pub(crate) async fn learn<B: Backend>(
    backend: &B,
    keys: &mut PythonKeys,
    texts: Vec<Vec<u8>>,
) -> Option<String> {
    let mut problem = None;
    let mut rest = texts.as_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |text: &&Vec<u8>| {
            bytes += text.len();
            bytes <= BATCH_BYTES
        };
        let (batch, after) = rest.split_at(rest.iter().take_while(fits).count().max(1));
        match ask(backend, batch).await {
            Ok(answers) => batch
                .iter()
                .zip(answers)
                .for_each(|(text, key)| keys.learn(text, key)),
            Err(why) => problem = problem.or(Some(why)),
        }
        rest = after;
    }
    problem
}

async fn ask<B: Backend>(backend: &B, texts: &[Vec<u8>]) -> Result<Vec<Option<String>>, String> {
    let files = texts
        .iter()
        .map(|text| Value::Bytes(text.clone()))
        .collect();
    let arguments = Value::Tuple(vec![
        Value::Tuple(vec![Value::List(files)]),
        Value::Dict(Vec::new()),
    ]);
    let mut call = Call::source(PYTHON_KEY_SOURCE, PYTHON_KEY_FUNCTION, encode(&arguments));
    call.timeout = Some(PATIENCE);
    let outcome = backend
        .execute(call)
        .await
        .map_err(|error| error.to_string())?;
    let Some(value) = &outcome.value else {
        let error = outcome.error.map(|error| error.message);
        return Err(error.unwrap_or_else(|| outcome.verdict.name().to_owned()));
    };
    let answer =
        decode_tree(value.body.bytes(), texts.len() + 1).map_err(|error| error.to_string())?;
    let keys = answer.as_list().filter(|keys| keys.len() == texts.len());
    let keys = keys.ok_or("Python gave no list of keys")?;
    Ok(keys.iter().map(Value::to_text).collect())
}
