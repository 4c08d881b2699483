//! `fairtrial` in a control group that was handed to it.

use fairtrial_tests::{Shell, note, wait_until};

/// A v2 control group that is handed to whoever starts in it, and what undoes that; gone with this.
struct Delegated(std::path::PathBuf, Option<String>);

impl Delegated {
    fn new() -> Result<Self, String> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("always there");
        let v2 = mounts.lines().find_map(|line| {
            let mut words = line.split(' ').skip(1);
            let (point, kind) = (words.next()?, words.next()?);
            (kind == "cgroup2").then(|| std::path::PathBuf::from(point))
        });
        let root = v2.ok_or("no cgroup v2 here")?;
        let free = std::fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
        let one = free.split_whitespace().next();
        let one = one.ok_or("no controller of v2 is free")?;
        let handed_on = root.join("cgroup.subtree_control");
        let before = std::fs::read_to_string(&handed_on).unwrap_or_default();
        let undo = (!before.split_whitespace().any(|word| word == one)).then(|| format!("-{one}"));
        std::fs::write(&handed_on, format!("+{one}"))
            .map_err(|error| format!("controllers are not ours to hand on: {error}"))?;
        let group = root.join(format!("test-{}", std::process::id()));
        std::fs::create_dir(&group).map_err(|error| error.to_string())?;
        Ok(Self(group, undo))
    }

    /// `sh` that goes in and becomes what follows.
    fn wrapper(&self, first: &str) -> Vec<String> {
        let enter = format!(
            "{first} echo 0 > {}/cgroup.procs; exec \"$@\"",
            self.0.display()
        );
        ["sh", "-c", &enter, "sh"].map(str::to_owned).into()
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).expect("nothing is left in it");
        if let (Some(undo), Some(root)) = (&self.1, self.0.parent()) {
            std::fs::write(root.join("cgroup.subtree_control"), undo).ok(); // somebody may use it by now
        }
    }
}

/// SB-28: the group that was handed over is then free to hand on controllers; afterwards all is as it was.
#[tokio::test]
async fn the_command_line_goes_below_a_control_group_that_it_has_for_itself() {
    let group = match Delegated::new() {
        Ok(group) => group,
        Err(reason) => return note(format!("skipped: {reason}")),
    };
    let shell = Shell::new();
    let look = "grep ^0:: /proc/self/cgroup; cat \"$0\"/cgroup.procs";
    let place = group.0.to_str().expect("text").to_owned();
    let seen = |first: &str| {
        let arguments = ["exec", "--sandbox", "none", "--", "sh", "-c", look, &place];
        let wrapper = group.wrapper(first);
        let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
        let run = shell.fairtrial(arguments).under_all(&wrapper).run();
        assert_eq!(run.code, Some(0), "{run:?}");
        run.stdout
    };
    let name = group.0.file_name().and_then(|name| name.to_str());
    let alone = seen("");
    let below = format!("0::/{}/fairtrial-", name.expect("text"));
    assert!(alone.starts_with(&below), "{alone}");
    assert_eq!(
        alone.lines().count(),
        1,
        "nobody is in the group itself: {alone}"
    );
    // With somebody else in it, it would be of no use, and is left as it is.
    let other = shell.path().join("other");
    let company = format!(
        "echo 0 > {place}/cgroup.procs; sleep 5 >/dev/null 2>&1 & echo $! > {};",
        other.display()
    );
    let crowded = seen(&company);
    assert!(
        crowded.starts_with(&format!("0::/{}\n", name.expect("text"))),
        "{crowded}"
    );
    let other: i32 = shell.read("other").trim().parse().expect("a number");
    let other = rustix::process::Pid::from_raw(other).expect("a process");
    rustix::process::kill_process(other, rustix::process::Signal::KILL).expect("it sleeps");
    // By whoever inherited it.
    let reaped = || rustix::process::test_kill_process(other).is_err();
    wait_until("it is reaped", reaped).await;
}
