//! Which access is found, and what the kernel says of those that are not.

use std::ffi::{CStr, CString};

use rustix::io::Errno;

use super::super::host::{Host, Which};
use super::super::*;
use super::*;

/// SB-28
#[test]
fn the_access_that_this_machine_offers_is_found() {
    let (access, host) = (Access::find(), Host::read().unwrap());
    for part in Part::ALL {
        match access.via(part) {
            Ok(via) => assert!(via.starts_with("cgroup v")),
            Err(reason) => assert!(!reason.what.is_empty()),
        }
    }
    say(&format!("{:?}, not {:?}", access.kind(), access.rejected()));
    let hybrid = host.place(Which::V1("memory")).is_ok() && host.place(Which::V1("pids")).is_ok();
    if !hybrid || !rustix::process::geteuid().is_root() {
        return skipped("not root on a hybrid machine");
    }
    assert_eq!(access.kind(), Kind::Hybrid);
    assert_eq!(
        access.via(Part::Memory),
        Ok("cgroup v1 memory.limit_in_bytes")
    );
    assert_eq!(access.via(Part::Processes), Ok("cgroup v1 pids.max"));
    if host.place(Which::V2).is_ok() {
        assert_eq!(access.via(Part::Kill), Ok("cgroup v2 cgroup.kill"));
        assert_eq!(access.via(Part::CpuTime), Ok("cgroup v2 cpu.stat"));
    }
}

/// SB-25
#[test]
fn each_way_can_be_forced_and_each_part_left_out() {
    let none = Access::forced(Kind::None, &[]);
    assert_eq!(
        (none.kind(), none.via(Part::Kill).is_ok()),
        (Kind::None, false)
    );
    assert!(Leaves::new(&none, &name()).is_err());
    let found = Access::find();
    for kind in [Kind::Delegated, Kind::RootV2, Kind::Hybrid] {
        let access = Access::forced(kind, &[]);
        let told = access
            .rejected()
            .iter()
            .any(|(rejected, _)| *rejected == kind);
        assert!(access.kind() == kind || (access.kind() == Kind::None && told));
    }
    let no_limits = Access::forced(found.kind(), &[Part::Memory, Part::Processes]);
    assert_eq!(no_limits.via(Part::Kill).ok(), found.via(Part::Kill).ok());
    for part in Part::ALL {
        let without = Access::forced(found.kind(), &[part]);
        assert_eq!(
            without.via(part).err().map(|reason| &*reason.what),
            Some("switched off")
        );
        let others = Part::ALL.into_iter().filter(|other| *other != part);
        let kept = |other: &Part| without.via(*other).is_ok() || found.via(*other).is_err();
        assert!(
            found.kind() == Kind::None || others.clone().all(|other| kept(&other)),
            "{part:?}"
        );
    }
}

/// SB-28: what the kernel says of a cgroup with a process in it, and where a process-free one above is found.
#[test]
fn a_cgroup_that_holds_processes_hands_on_no_controllers() {
    let Some(mut leaves) = leaves_by(&Access::forced(Kind::RootV2, &[]), &[Part::Kill]) else {
        return;
    };
    let leaf = leaves.take(&LeafLimits::default()).unwrap();
    let engine = leaves.engine_group(Part::Kill).unwrap();
    let dir = &group::open(engine, &*leaf.slot().to_string()).unwrap();
    let Some(controller) = group::controllers(engine).first().cloned() else {
        return skipped("no v2 controller is free to be tried");
    };
    let mut child = run_in(&leaf, "read x");
    assert_eq!(group::enable(engine, &[&controller]), []);
    assert_eq!(
        group::enable(dir, &[&controller]),
        [(&*controller, Errno::BUSY)]
    );
    drop(child.stdin.take());
    child.wait().unwrap();
    until("empty", || leaf.is_empty());
    assert_eq!(group::enable(dir, &[&controller]), []);
}

/// SB-28: the host is not moved, so its own cgroup only kills and counts.
#[test]
fn an_own_cgroup_with_us_inside_gives_a_leaf_without_limits() {
    let access = Access::forced(Kind::RootV2, &[]);
    let Some(mut leaves) = leaves_by(&access, &[Part::Kill]) else {
        return;
    };
    let leaf = leaves.take(&LeafLimits::default()).unwrap();
    let mut child = run_in(&leaf, "read x");
    let membership = std::fs::read(format!("/proc/{}/cgroup", child.id())).unwrap();
    let mountinfo = std::fs::read("/proc/self/mountinfo").unwrap();
    // As that child would see it, on a machine whose cgroups are systemd's.
    let host = Host::parse(&mountinfo, &membership, true);
    let own = Access::search_on(&host, &[Kind::Delegated], &[]);
    assert_eq!(
        (own.kind(), own.via(Part::Kill)),
        (Kind::Delegated, Ok("cgroup v2 cgroup.kill"))
    );
    let reason = own.via(Part::Memory).unwrap_err();
    assert_eq!(reason.errno, Some("EBUSY"));
    assert!(reason.hint.contains("Delegate=yes"));
    let mut below = Leaves::new(&own, &name()).unwrap();
    let inner = below.take(&LeafLimits::default()).unwrap();
    let mut grandchild = run_in(&inner, "read x");
    assert!(inner.kill());
    grandchild.wait().unwrap();
    below.end().unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// SB-68: told with errno and hint, by a container's read-only cgroups and by none to be seen.
#[test]
fn cgroups_that_cannot_be_written_or_seen_are_no_access() {
    let look = || {
        // SAFETY: takes numbers only; from here on this thread, which ends soon, has mounts of its own.
        if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
            return skipped("no mount namespace to be had");
        }
        mount(c"/", None, libc::MS_REC | libc::MS_PRIVATE);
        let host = Host::read().unwrap();
        let v1 = ["memory", "pids", "cpu", "cpuacct"].map(Which::V1);
        let places = v1
            .into_iter()
            .chain([Which::V2])
            .flat_map(|which| host.place(which));
        for place in places {
            let point = CString::new(place.mount.as_os_str().as_encoded_bytes()).unwrap();
            mount(
                &point,
                None,
                libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY,
            );
        }
        let (access, asked) = (Access::find(), Part::Memory);
        let reason = access.via(asked).unwrap_err();
        assert_eq!(
            (access.kind(), reason.errno),
            (Kind::None, Some("EROFS")),
            "{access:?}"
        );
        assert!(reason.hint.contains("read-only"));
        mount(c"/sys", Some(c"tmpfs"), 0);
        let access = Access::find();
        let reason = access.via(asked).unwrap_err();
        assert_eq!(
            (access.kind(), reason.errno),
            (Kind::None, Some("ENOENT")),
            "{access:?}"
        );
    };
    if leaves(&[Part::Processes]).is_some() {
        std::thread::spawn(look).join().unwrap();
    }
}

fn mount(point: &CStr, kind: Option<&CStr>, flags: libc::c_ulong) {
    let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: strings that live, or null where the kernel does not look.
    let result = unsafe { libc::mount(kind, point.as_ptr(), kind, flags, std::ptr::null()) };
    assert_eq!(result, 0, "{point:?}: {}", std::io::Error::last_os_error());
}
