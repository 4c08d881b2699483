//! One suite over every way to have a workspace (CA-28): what commands find there, what they leave, and that the user's
//! own tree stays as it is. A way that the machine lacks is skipped, and says why.

mod found;
mod left;
mod stopped;

use std::collections::BTreeMap;
use std::path::PathBuf;

use fairtrial_exec::{WorkspaceNamespace, probe_copy, probe_workspaces};
use fairtrial_tests::{Story, note};

use super::trial::{Seen, Trial};

/// A way to have a workspace.
#[derive(Clone, Copy, Debug)]
struct Provider {
    /// In evaluation files.
    word: &'static str,
    /// In reports.
    name: &'static str,
    /// The tree is mounted in the repository's place, and all changes go elsewhere.
    mounted: Option<WorkspaceNamespace>,
}

impl Provider {
    /// Why it cannot be had here. Copies always can.
    fn lack(self) -> Option<String> {
        let story = Story::new();
        match (self.word, self.mounted) {
            (_, Some(namespace)) => waiting(async {
                let tried = probe_workspaces(&story.backend, story.path()).await;
                let tried = tried.expect("a directory can be made");
                let mut of_kind = tried.into_iter().filter(|one| one.namespace == namespace);
                of_kind.find_map(|one| one.problem)
            }),
            ("reflink", None) => {
                let problem = probe_copy(story.path(), true).err();
                problem.map(|problem| problem.to_string())
            }
            _ => None,
        }
    }

    /// All of the user's own tree that is never to change: with worktrees, git's list of those is ours to write, too.
    fn untouchable(self, trial: &Trial) -> BTreeMap<PathBuf, Seen> {
        let mut census = trial.census("repo");
        if self.word == "worktree" {
            let git = trial.path("repo/.git");
            census.retain(|path, _| *path != git && !path.starts_with(git.join("worktrees")));
        }
        census
    }

    /// A trial with workspaces of this kind.
    fn trial(self) -> Trial {
        Trial::new().on(self.word)
    }
}

/// Something that holds whatever the provider.
type Fact = fn(Provider);

fn holds(fact: Fact, provider: Provider) {
    match provider.lack() {
        None => fact(provider),
        Some(why) => note(format!("skipped: no {}: {why}", provider.name)),
    }
}

/// Waits in a test that is none of tokio's.
fn waiting<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime can be had").block_on(what)
}

/// Every fact of the suite, for one provider.
macro_rules! suite {
    ($way:ident, $word:literal, $name:literal, $mounted:expr) => {
        mod $way {
            use super::*;

            const PROVIDER: Provider = Provider {
                word: $word,
                name: $name,
                mounted: $mounted,
            };

            suite! {PROVIDER,
                found::the_tree_is_found_as_it_stands
                found::commands_run_where_the_report_says
                found::at_every_level_the_users_tree_is_out_of_reach
                found::the_history_is_one_commit_without_the_users_own
                found::without_a_history_git_finds_none
                found::shared_directories_are_there_and_stay_as_they_are
                found::every_command_starts_from_the_same_state
                found::two_candidates_of_one_size_and_time_run_their_own_code
                left::a_protected_path_touched_at_run_time_is_tampering
                left::results_are_read_through_no_link
                left::whatever_modes_and_names_are_left_the_next_command_finds_the_tree
                left::a_full_disk_is_the_candidates_own
                left::tree_index_stash_and_worktrees_stay_as_they_are
                stopped::a_killed_evaluation_is_tidied_up_by_the_next
                stopped::a_signal_ends_everything
                stopped::engines_on_one_repository_do_not_disturb_each_other
                stopped::more_candidates_than_slots_all_get_their_turn
                stopped::grandchildren_of_a_test_that_took_too_long_are_gone_with_it
            }
        }
    };
    ($provider:ident, $($part:ident::$fact:ident)*) => {
        $(
            #[test]
            fn $fact() {
                holds($part::$fact, $provider);
            }
        )*
    };
}

suite!(
    overlay_userns,
    "overlay-userns",
    "overlay(userns)",
    Some(WorkspaceNamespace::User)
);
suite!(
    overlay_root,
    "overlay-root",
    "overlay(root)",
    Some(WorkspaceNamespace::Root)
);
suite!(reflink, "reflink", "reflink", None);
suite!(copy, "copy", "copy", None);
suite!(worktree, "worktree", "worktree", None);
