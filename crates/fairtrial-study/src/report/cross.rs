//! Agents beside each other in every condition: the mean of the primary outcome. Bounded in both directions.

use crate::html::{count, put, short, table};
use crate::report::figures::{brief, number};
use crate::report::groups::{Group, Groups};
use crate::report::outcome::{Missing, Outcome, interval_of_mean};
use crate::stats::Moments;

/// Rows that people compare.
const MOST_CONDITIONS: u64 = 40;
/// Columns that fit a page.
const MOST_AGENTS: u64 = 12;

/// The values of one outcome by condition and agent.
pub(crate) struct Cross {
    /// Its place among outcomes.
    outcome: usize,
    agents: usize,
    /// By condition, then agent; none where the table would be too large.
    cells: Vec<Moments>,
}

impl Cross {
    /// Of a study with several agents and several conditions; none of another.
    pub(crate) fn of(conditions: &Groups, agents: &Groups, outcomes: &[Outcome]) -> Option<Self> {
        let (rows, columns) = (conditions.total(), agents.total());
        if rows < 2 || columns < 2 || outcomes.is_empty() {
            return None;
        }
        let fits = rows <= MOST_CONDITIONS && columns <= MOST_AGENTS;
        let cells = if fits { (rows * columns) as usize } else { 0 };
        Some(Self {
            outcome: outcomes.iter().position(|one| one.is_primary).unwrap_or(0),
            agents: agents.groups.len(),
            cells: vec![Moments::default(); cells],
        })
    }

    /// A run that ended.
    pub(crate) fn add(
        &mut self,
        condition: usize,
        agent: usize,
        outcomes: &[Outcome],
        values: &[Option<f64>],
    ) {
        let value = match (values[self.outcome], &outcomes[self.outcome].missing) {
            (None, Missing::Zero) => 0.0,
            (None, _) => return,
            (Some(value), _) => value,
        };
        if let Some(cell) = self.cells.get_mut(condition * self.agents + agent) {
            cell.add(value);
        }
    }

    /// Writes the table, or why there is none. Where every condition is one agent's there is nothing to compare.
    pub(crate) fn part(
        &self,
        out: &mut String,
        conditions: &Groups,
        agents: &Groups,
        outcomes: &[Outcome],
        binary: &[bool],
    ) {
        let rows = || self.cells.chunks(self.agents);
        let is_shared = |row: &[Moments]| row.iter().filter(|cell| cell.n > 0).count() > 1;
        if !self.cells.is_empty() && !rows().any(is_shared) {
            return;
        }
        let name = short(&outcomes[self.outcome].name, 120);
        put(
            out,
            format_args!("<h3>{name} by condition and agent</h3>\n"),
        );
        if self.cells.is_empty() {
            put(
                out,
                format_args!(
                    "<p class=\"note\">No table: {} conditions and {} agents are more than {MOST_CONDITIONS} or \
                     {MOST_AGENTS}.</p>\n",
                    count(conditions.total()),
                    count(agents.total())
                ),
            );
            return;
        }
        let is_binary = binary[self.outcome];
        let whose = if is_binary {
            "Wilson’s"
        } else {
            "Student’s"
        };
        put(
            out,
            format_args!(
                "<p class=\"note\">Means with {whose} 95 % interval, and the runs that have a value.</p>\n"
            ),
        );
        let label = |group: &Group| short(&group.label, 120);
        let mut head = vec!["Condition".to_owned()];
        head.extend(agents.groups.iter().map(label));
        let rows = conditions.groups.iter().zip(rows()).map(|(group, cells)| {
            let mut row = vec![label(group)];
            row.extend(cells.iter().map(|moments| cell(moments, is_binary)));
            row
        });
        out.push_str(&table("cross", &head, &rows.collect::<Vec<_>>()));
    }
}

fn cell(moments: &Moments, is_binary: bool) -> String {
    if moments.n == 0 {
        return "–".to_owned();
    }
    let interval = interval_of_mean(moments, is_binary).map_or(String::new(), |interval| {
        format!("[{}, {}] · ", brief(interval.low), brief(interval.high))
    });
    let (mean, n) = (number(moments.mean), count(moments.n));
    format!("{mean}<small>{interval}n = {n}</small>")
}
