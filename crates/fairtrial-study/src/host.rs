//! What a host program binds by itself (ST-87): its own functions, beside the programs that files name, and its problems.

use std::sync::Arc;

use fairtrial_exec::value::decode_tree;
use fairtrial_exec::{Level, PythonTerms, Sandbox};

use crate::binding::{Binding, EntryPoint, Packet};
use crate::compat::Compat;
use crate::fault::{Findings, Invalid, Place, fault, short};
use crate::node::{Content, Entry, Node};
use crate::read::{Reader, bindings};
use crate::result::{self, MAX_VALUES};
use crate::study::{AGENT_FACTORS, Factor, PROBLEM_FACTORS, Study};
use crate::value::Value;

/// A function of the host program's.
#[derive(Clone, Debug, PartialEq)]
pub struct HostFunction {
    /// What it is called, as `module:name`.
    pub name: String,
    /// Of the file that it is from; none where there is none, or a version stands for it.
    pub content_sha256: Option<String>,
    /// The function, as a worker unpickles it.
    pub pickle: Arc<[u8]>,
    /// The host's interpreter, and what workers get of it; isolation and preloaded modules are the binding's.
    pub python: PythonTerms,
}

/// A binding as a study file has it, or a function with a binding's options.
#[derive(Clone, Debug)]
pub struct HostBinding {
    /// The function; none if `given` says what is called.
    pub function: Option<HostFunction>,
    /// As it would stand in a study file.
    pub given: Value,
}

/// A problem.
#[derive(Clone, Debug)]
pub struct HostPacket {
    /// As it would stand in a study file, without its evaluator.
    pub given: Value,
    /// Its evaluator.
    pub evaluator: Option<HostBinding>,
}

/// What a host program binds.
#[derive(Clone, Debug, Default)]
pub struct HostBindings {
    /// Agents; none leaves them to the study file.
    pub agents: Option<Vec<(String, HostBinding)>>,
    /// Problems; none leaves them to the study file.
    pub problems: Option<Vec<(String, HostPacket)>>,
    /// What runs standalone conditions.
    pub runner: Option<HostBinding>,
}

impl Study {
    /// The study with what the host binds. Of an id that the file binds too, the host's binding holds; the file's
    /// `defaults` are those of the host's functions as well.
    pub fn bind(mut self, host: HostBindings) -> Result<Self, Invalid> {
        let mut binder = Binder {
            reader: Reader {
                compat: self.compat,
                findings: Findings::default(),
            },
            place: Place {
                file: self.file.clone(),
                line: 1,
                column: 1,
            },
            defaults: std::mem::take(&mut self.bindings.defaults),
        };
        let bound = &mut self.bindings;
        if let Some(given) = host.runner {
            bound.runner = binder.binding(&given, "the condition runner");
        }
        if let Some(given) = host.agents {
            let agents = given.iter().filter_map(|(id, given)| {
                let what = format!("agent `{}`", short(id));
                Some((id.clone(), binder.binding(given, &what)?))
            });
            merge(&mut bound.agents, agents.collect());
        }
        if let Some(given) = host.problems {
            let problems = given.iter().map(|(id, given)| {
                let packet = binder.packet(id, given);
                (id.clone(), packet)
            });
            merge(&mut bound.problems, problems.collect());
        }
        bound.defaults = std::mem::take(&mut binder.defaults);
        if bound.runner.is_some() && (bound.agents.is_some() || bound.problems.is_some()) {
            let message = "a runner and agents or problems exclude each other";
            let hint = "bind the one or the others";
            binder
                .reader
                .fault(&binder.place, "contradiction", message, hint);
        }
        self.take_ids();
        self.warn_of_unused(&binder.place);
        let warnings = binder.reader.findings.settle()?;
        self.warnings.extend(warnings);
        Ok(self)
    }

    /// ST-2: without `agent_specs`, the bindings' ids are used; likewise problems.
    fn take_ids(&mut self) {
        let ids = |ids: Vec<&String>| ids.into_iter().map(Value::text).collect::<Vec<_>>();
        let (agents, problems) = (&self.bindings.agents, &self.bindings.problems);
        if self.agents.is_empty() {
            self.agents = ids(agents.iter().flatten().map(|(id, _)| id).collect());
        }
        if self.problems.is_empty() {
            self.problems = ids(problems.iter().flatten().map(|(id, _)| id).collect());
        }
        if let Value::Map(entries) = &mut self.normalised {
            for (key, value) in entries {
                match key.as_text() {
                    Some("agent_specs") => *value = Value::List(self.agents.clone()),
                    Some("problem_ids") => *value = Value::List(self.problems.clone()),
                    _ => {}
                }
            }
        }
    }

    fn warn_of_unused(&mut self, place: &Place) {
        let unused = |what: &str, factors: &[&str], listed: &[Value], bound: Vec<&String>| {
            let mut named = factors.iter();
            let factor = named.find_map(|name| self.factors.iter().find(|f| f.name == *name));
            let used = factor.map_or_else(|| listed.to_vec(), Factor::values);
            let unused = bound
                .into_iter()
                .filter(|id| !used.iter().any(|used| used.to_str() == **id));
            let said = unused.map(|id| {
                let message = format!("{what} `{}` is not used", short(id));
                fault(place, "unused_binding", message, "")
            });
            said.collect::<Vec<_>>()
        };
        let agents = self.bindings.agents.iter().flatten().map(|(id, _)| id);
        let problems = self.bindings.problems.iter().flatten().map(|(id, _)| id);
        let mut said = unused("agent", &AGENT_FACTORS, &self.agents, agents.collect());
        said.extend(unused(
            "problem",
            &PROBLEM_FACTORS,
            &self.problems,
            problems.collect(),
        ));
        said.retain(|said| {
            let mut known = self.warnings.iter();
            !known.any(|known| known.message == said.message)
        });
        self.warnings.extend(said);
    }

    /// How a function is called whose binding does not say it.
    #[must_use]
    pub fn calls_as_dre(&self) -> bool {
        let is_contract = |entry: &&Entry| entry.key.as_text() == Some("contract");
        let given = self.bindings.defaults.iter().rfind(is_contract);
        match given.and_then(|entry| entry.value.as_text()) {
            Some(contract) => contract == "dre",
            None => self.compat == Compat::Dre,
        }
    }
}

fn merge<T>(known: &mut Option<Vec<(String, T)>>, given: Vec<(String, T)>) {
    let known = known.get_or_insert_default();
    for (id, value) in given {
        match known.iter_mut().find(|(known, _)| *known == id) {
            Some((_, old)) => *old = value,
            None => known.push((id, value)),
        }
    }
}

/// Reads what the host gives as if it stood at the beginning of the file.
struct Binder {
    reader: Reader,
    place: Place,
    defaults: Vec<Entry>,
}

impl Binder {
    fn binding(&mut self, given: &HostBinding, what: &str) -> Option<Binding> {
        let node = node(&given.given, &self.place);
        let known = given.function.clone().map(EntryPoint::Host);
        let (reader, defaults) = (&mut self.reader, &self.defaults);
        let mut binding = bindings::binding_of(reader, &node, what, defaults, known)?;
        if given.function.is_some() {
            // The caller's own function, which could do all it does without a worker, too.
            let sandbox = &mut binding.terms.sandbox;
            sandbox.get_or_insert_with(|| Sandbox::new(Level::None));
        }
        Some(binding)
    }

    fn packet(&mut self, id: &str, given: &HostPacket) -> Packet {
        let written = node(&given.given, &self.place);
        let mut packet = bindings::packet(&mut self.reader, &written, id, &self.defaults);
        if let Some(evaluator) = &given.evaluator {
            let what = format!("evaluator of problem `{}`", short(id));
            packet.evaluator = self.binding(evaluator, &what);
        }
        packet
    }
}

/// Plain data in the engine's encoding; `path` says what it is where it is not plain.
pub fn plain_data(bytes: &[u8], path: &str) -> Result<Value, String> {
    let data = decode_tree(bytes, MAX_VALUES).map_err(|error| format!("`{path}`: {error}"))?;
    result::plain(&data, path)
}

/// A value as if it stood in a file.
fn node(value: &Value, place: &Place) -> Node {
    let content = match value {
        Value::List(items) => Content::List(items.iter().map(|item| node(item, place)).collect()),
        Value::Map(entries) => Content::Map(
            entries
                .iter()
                .map(|(key, value)| Entry {
                    key: node(key, place),
                    value: node(value, place),
                })
                .collect(),
        ),
        scalar => Content::Scalar(scalar.clone()),
    };
    Node {
        place: place.clone(),
        content,
        doubt: None,
    }
}
