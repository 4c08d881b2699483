//! The only code that runs git. It reads: index, stash, config and refs of the user stay as they are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use fairtrial_exec::{Backend, Call, Level, Outcome, Sandbox, Verdict, Work};

use super::error::EvaluateError;

/// Lists of files of large repositories are long.
const MOST_OUTPUT: u64 = 512 << 20;

/// Files are committed byte for byte, whatever filters, encodings and ends of lines the tree asks for.
const AS_THEY_ARE: &str = "* -text !eol !filter !ident !working-tree-encoding\n";

/// Git, run as the user would: with the user's own configuration, but without programs that a repository names.
pub(crate) struct Git<'a, B> {
    backend: &'a B,
    /// Variables by which git finds the user's configuration.
    user: &'a BTreeMap<OsString, OsString>,
}

/// Git's code for an option that it does not know.
const USAGE: i32 = 129;

/// How a command of git's ended.
struct Ran {
    code: Option<i32>,
    stdout: Vec<u8>,
    stderr: String,
}

/// A directory as git knows it.
#[derive(Debug, Clone)]
pub(crate) struct WorkTree {
    /// The directory.
    pub(crate) directory: PathBuf,
    /// Its place in the work tree, with a `/` at the end; empty for the whole.
    prefix: Vec<u8>,
}

/// A file of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tracked {
    /// Its path below the directory that was asked about.
    pub(crate) path: Vec<u8>,
    /// The commit of a submodule; none of a file.
    pub(crate) submodule: Option<String>,
}

impl<'a, B: Backend> Git<'a, B> {
    pub(crate) fn new(backend: &'a B, user: &'a BTreeMap<OsString, OsString>) -> Self {
        Self { backend, user }
    }

    /// The work tree that a directory belongs to; none if it is a plain directory.
    pub(crate) async fn work_tree(
        &self,
        directory: &Path,
    ) -> Result<Option<WorkTree>, EvaluateError> {
        let ran = self
            .run(
                directory,
                &["rev-parse", "--is-inside-work-tree", "--show-prefix"],
            )
            .await?;
        let mut lines = ran.stdout.split(|byte| *byte == b'\n');
        match (ran.code, lines.next()) {
            (Some(0), Some(b"true")) => Ok(Some(WorkTree {
                directory: directory.to_owned(),
                prefix: lines.next().unwrap_or_default().to_vec(),
            })),
            (Some(0), _) => Ok(None), // a bare repository, or the inside of one
            _ if ran.stderr.contains("not a git repository") => Ok(None),
            _ => Err(refused("asking git about the repository", &ran)),
        }
    }

    /// The commit that a name stands for; none if there is no such.
    pub(crate) async fn commit(
        &self,
        tree: &WorkTree,
        name: &str,
    ) -> Result<Option<String>, EvaluateError> {
        let name = format!("{name}^{{commit}}");
        let arguments = [
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &name,
        ];
        let ran = self.run(&tree.directory, &arguments).await?;
        let id = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        Ok((ran.code == Some(0) && !id.is_empty()).then_some(id))
    }

    /// Whether the directory differs from its commit, by tracked or untracked files.
    pub(crate) async fn is_dirty(&self, tree: &WorkTree) -> Result<bool, EvaluateError> {
        let arguments = [
            "status",
            "--porcelain",
            "-z",
            "--untracked-files=normal",
            "--",
            ".",
        ];
        Ok(!self.ask(&tree.directory, &arguments).await?.is_empty())
    }

    /// What the index has below the directory.
    pub(crate) async fn tracked(&self, directory: &Path) -> Result<Vec<Tracked>, EvaluateError> {
        // Else a sparse index is filled in, and the user's objects are touched for that.
        let sparse = ["ls-files", "-z", "--stage", "--sparse"];
        let asked = self.run(directory, &sparse).await?;
        let list = match asked.code {
            Some(0) => asked.stdout,
            Some(USAGE) => self.ask(directory, &sparse[..3]).await?, // before git 2.36 there is no such option
            _ => return Err(refused("asking git for the files of the index", &asked)),
        };
        let mut tracked: Vec<Tracked> = records(&list).filter_map(Tracked::read).collect();
        tracked.dedup_by(|one, other| one.path == other.path); // stages of an unmerged file
        Ok(tracked)
    }

    /// Files below the directory that git does not know and does not ignore.
    pub(crate) async fn untracked(&self, directory: &Path) -> Result<Vec<Vec<u8>>, EvaluateError> {
        let arguments = ["ls-files", "-z", "--others", "--exclude-standard"];
        let list = self.ask(directory, &arguments).await?;
        Ok(records(&list).map(<[u8]>::to_vec).collect())
    }

    /// Files below the directory that git ignores.
    pub(crate) async fn ignored(&self, directory: &Path) -> Result<Vec<Vec<u8>>, EvaluateError> {
        let arguments = [
            "ls-files",
            "-z",
            "--others",
            "--ignored",
            "--exclude-standard",
        ];
        let list = self.ask(directory, &arguments).await?;
        Ok(records(&list).map(<[u8]>::to_vec).collect())
    }

    /// Writes the files of a commit below `into`, as a checkout would, by an index of our own at `index`. Gives them.
    pub(crate) async fn check_out(
        &self,
        tree: &WorkTree,
        commit: &str,
        index: &Path,
        into: &Path,
    ) -> Result<Vec<Tracked>, EvaluateError> {
        let mut treeish = format!("{commit}:").into_bytes();
        treeish.extend(tree.prefix.strip_suffix(b"/").unwrap_or(&tree.prefix));
        let private = [(
            OsString::from("GIT_INDEX_FILE"),
            index.as_os_str().to_owned(),
        )];
        // From the top: a relative prefix would be taken from there anyway.
        // A sparse index would be made of trees, for which the user's objects are touched.
        let read = [
            OsString::from("-c"),
            "index.sparse=false".into(),
            "read-tree".into(),
            OsString::from_vec(treeish),
        ];
        self.ask_with(&tree.directory, &read, &private).await?;
        let mut prefix = OsString::from("--prefix=");
        prefix.push(into);
        prefix.push("/");
        let write = [
            OsString::from("-c"),
            "index.sparse=false".into(),
            "checkout-index".into(),
            "--all".into(),
            "--force".into(),
            prefix,
        ];
        self.ask_with(&tree.directory, &write, &private).await?;
        // This index is whole, and is to be listed so.
        let whole = ["-c", "index.sparse=false"];
        let list = ["ls-files", "--full-name", "-z", "--stage", ":/"];
        let list = [&whole[..], &list].concat();
        let list: Vec<OsString> = list.into_iter().map(OsString::from).collect();
        let list = self.ask_with(&tree.directory, &list, &private).await?;
        Ok(records(&list).filter_map(Tracked::read).collect())
    }

    /// A repository with one commit of the files below `work_tree`, always the same for the same files, at `git_dir`.
    pub(crate) async fn one_commit(
        &self,
        work_tree: &Path,
        git_dir: &Path,
    ) -> Result<(), EvaluateError> {
        let init = [
            "init",
            "--quiet",
            "--template=",
            "--initial-branch=main",
            "--",
        ];
        let mut init: Vec<OsString> = init.map(OsString::from).to_vec();
        let home = git_dir.parent().unwrap_or(git_dir);
        init.push(home.into());
        self.ask_with(home, &init, &[]).await?;
        let attributes = git_dir.join("info/attributes");
        std::fs::create_dir_all(git_dir.join("info"))
            .and_then(|()| std::fs::write(attributes, AS_THEY_ARE))
            .map_err(EvaluateError::attempting("writing a history of one commit"))?;
        let place = [("GIT_DIR", git_dir), ("GIT_WORK_TREE", work_tree)];
        let place = place.map(|(name, path)| (OsString::from(name), path.as_os_str().to_owned()));
        let who = ["AUTHOR", "COMMITTER"].into_iter().flat_map(|role| {
            [
                ("NAME", "fairtrial"),
                ("EMAIL", "fairtrial@localhost"),
                ("DATE", "@0 +0000"),
            ]
            .map(|(what, value)| {
                (
                    OsString::from(format!("GIT_{role}_{what}")),
                    OsString::from(value),
                )
            })
        });
        let env: Vec<_> = place.into_iter().chain(who).collect();
        // `--force`: what was taken into the snapshot is in it, ignored or not.
        let add = ["add", "--all", "--force", "--", "."];
        self.ask_with(work_tree, &add.map(OsString::from), &env)
            .await?;
        let commit = [
            "commit",
            "--quiet",
            "--allow-empty",
            "--no-verify",
            "--no-gpg-sign",
            "-m",
            "base",
        ];
        self.ask_with(work_tree, &commit.map(OsString::from), &env)
            .await?;
        Ok(())
    }

    /// Where the repository keeps what all its work trees share.
    pub(crate) async fn common_dir(&self, tree: &WorkTree) -> Result<PathBuf, EvaluateError> {
        let arguments = ["rev-parse", "--path-format=absolute", "--git-common-dir"];
        let path = self.ask(&tree.directory, &arguments).await?;
        let path = path.strip_suffix(b"\n").unwrap_or(&path).to_vec();
        Ok(PathBuf::from(OsString::from_vec(path)))
    }

    /// Makes a locked work tree without any files.
    pub(crate) async fn add_worktree(
        &self,
        tree: &WorkTree,
        place: &Path,
        commit: &str,
    ) -> Result<(), EvaluateError> {
        let words = [
            "worktree",
            "add",
            "--detach",
            "--lock",
            "--no-checkout",
            "--quiet",
        ];
        let words = words.iter().map(OsString::from);
        let arguments: Vec<OsString> = words.chain([place.into(), commit.into()]).collect();
        self.ask_with(&tree.directory, &arguments, &[]).await?;
        Ok(())
    }

    async fn ask(&self, directory: &Path, arguments: &[&str]) -> Result<Vec<u8>, EvaluateError> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        self.ask_with(directory, &arguments, &[]).await
    }

    async fn ask_with(
        &self,
        directory: &Path,
        arguments: &[OsString],
        env: &[(OsString, OsString)],
    ) -> Result<Vec<u8>, EvaluateError> {
        let ran = self.run_with(directory, arguments, env).await?;
        match ran.code {
            Some(0) => Ok(ran.stdout),
            _ => {
                let words: Vec<_> = arguments
                    .iter()
                    .map(|word| word.to_string_lossy())
                    .collect();
                Err(refused(&format!("running `git {}`", words.join(" ")), &ran))
            }
        }
    }

    async fn run(&self, directory: &Path, arguments: &[&str]) -> Result<Ran, EvaluateError> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        self.run_with(directory, &arguments, &[]).await
    }

    async fn run_with(
        &self,
        directory: &Path,
        arguments: &[OsString],
        env: &[(OsString, OsString)],
    ) -> Result<Ran, EvaluateError> {
        // A repository of another user's is still the one that was asked for; its monitor and hooks are programs of its own.
        let head = [
            "git",
            "-c",
            "safe.directory=*",
            "-c",
            "core.fsmonitor=false",
            "-c",
            "core.hooksPath=/dev/null",
        ];
        let argv = head
            .iter()
            .map(OsString::from)
            .chain(arguments.iter().cloned());
        let mut call = Call::command(argv);
        call.sandbox = Sandbox::new(Level::None);
        call.cwd = Some(directory.to_owned());
        call.capture_bytes = MOST_OUTPUT;
        call.limits.output_bytes = Some(MOST_OUTPUT);
        let own = [
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LC_ALL", "C"),
        ];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let user = self
            .user
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()));
        let all = user.chain(own).chain(env.iter().cloned());
        call.env
            .extend(all.map(|(name, value)| (name, Some(value))));
        debug_assert!(matches!(call.work, Work::Command(_)));
        let outcome = self.backend.execute(call).await?;
        Ran::of(outcome)
    }
}

impl Ran {
    fn of(outcome: Outcome) -> Result<Self, EvaluateError> {
        use fairtrial_exec::Exit;
        let code = match (outcome.verdict, outcome.exit) {
            (Verdict::Ok, _) => Some(0),
            (_, Some(Exit::Code(code))) => Some(code),
            (Verdict::SetupFailed, _) => {
                let why = outcome.error.map(|error| error.message).unwrap_or_default();
                return Err(EvaluateError::Failed(format!("git cannot be run: {why}")));
            }
            _ => None,
        };
        if outcome.stdout.dropped > 0 {
            let problem = "git's answer is too long to be kept";
            return Err(EvaluateError::Failed(problem.to_owned()));
        }
        Ok(Self {
            code,
            stdout: outcome.stdout.bytes().to_vec(),
            stderr: outcome.stderr.text(),
        })
    }
}

impl Tracked {
    /// `MODE OBJECT STAGE\tPATH`; none of what is no file.
    fn read(record: &[u8]) -> Option<Self> {
        let tab = record.iter().position(|byte| *byte == b'\t')?;
        let (head, path) = (&record[..tab], &record[tab + 1..]);
        let mut words = head.split(|byte| *byte == b' ');
        let (mode, object) = (words.next()?, words.next()?);
        if mode == b"040000" {
            return None; // a directory that is not checked out
        }
        let submodule = mode == b"160000";
        Some(Self {
            path: path.to_vec(),
            submodule: submodule.then(|| String::from_utf8_lossy(object).into_owned()),
        })
    }
}

fn records(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == 0)
        .filter(|record| !record.is_empty())
}

fn refused(what: &str, ran: &Ran) -> EvaluateError {
    let last = ran.stderr.trim().lines().last().unwrap_or_default();
    let code = ran.code.map_or_else(
        || "was ended".to_owned(),
        |code| format!("exit code {code}"),
    );
    EvaluateError::Failed(format!("{what}: {code}: {last}"))
}

/// The path of a list below a directory.
pub(crate) fn below(directory: &Path, path: &[u8]) -> PathBuf {
    directory.join(std::ffi::OsStr::from_bytes(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_is_read_with_submodules_and_odd_names() {
        let list = b"040000 3e 0\tfar/\x00100644 0a 0\ta b\x00160000 1c 0\tsub\x00120000 2d 0\tnew\nline\x00";
        let read: Vec<_> = records(list).filter_map(Tracked::read).collect();
        let file = |path: &[u8]| Tracked {
            path: path.to_vec(),
            submodule: None,
        };
        let sub = Tracked {
            path: b"sub".to_vec(),
            submodule: Some("1c".to_owned()),
        };
        assert_eq!(read, [file(b"a b"), sub, file(b"new\nline")]);
    }
}
