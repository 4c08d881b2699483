//! What the cage looks like from inside: everything of the host read-only, all that can be written of sized memory, no
//! home but a made-up one, devices that do no harm, control groups that end at the cage.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount, mount_bind, mount_bind_recursive, mount_remount, unmount};

use super::{OWN, Plan, cgroups::Group};
use crate::places;
use crate::show::{Refusal, attempting};

/// Programs: this one, and those compiled for the trials. `fairtrial` is one directory up, where tests look for it.
pub(crate) const BIN: &str = "/run/hostile/bin";
/// The made-up home.
pub(crate) const HOME: &str = "/home/hostile";
/// Where the engine and everybody else may write.
pub(crate) const TMP: &str = "/tmp";
/// Stand in for the world, and for a cloud's metadata service; both are this cage's loopback.
pub(crate) const WORLD_ADDRESSES: [(&str, &str); 2] =
    [("world", "198.51.100.7"), ("metadata", "169.254.169.254")];

/// What is hidden, by what size. Places that the host does not have are left out.
const MEMORY_DISKS: [(&str, &str); 7] = [
    ("/tmp", "size=1g,nr_inodes=400k,mode=1777"),
    ("/var/tmp", "size=16m,mode=1777"),
    ("/home", "size=64m,mode=755"),
    ("/root", "size=16m,mode=755"),
    ("/mnt", "size=1m,mode=755"),
    ("/etc/cron.d", "size=1m,mode=777"),
    ("/var/spool/cron", "size=1m,mode=777"),
];
const HARMLESS_DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Sets the cage up; by its first process, which is root.
pub(super) fn furnish(plan: &Plan) -> Result<(), Refusal> {
    make_read_only()?;
    disk("/run", "size=64m,mode=755")?;
    keep_programs(plan)?;
    for (place, options) in MEMORY_DISKS {
        if Path::new(place).is_dir() {
            disk(place, options)?;
        }
    }
    show_interpreter(plan)?;
    devices()?;
    control_groups(&plan.groups)?;
    super::cgroups::make_trials_group();
    network(plan)?;
    places::furnish(plan)?;
    drop_capabilities()?;
    let text = serde_json::to_string(plan)?;
    fs::write(Path::new(OWN).join("plan.json"), text)?;
    Ok(())
}

/// Variables of everybody inside.
pub(super) fn environment() -> [(&'static str, &'static str); 4] {
    [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"),
        ("HOME", HOME),
        ("TMPDIR", TMP),
        ("LANG", "C.UTF-8"),
    ]
}

/// Refuses if a disk can be filled, the host's files changed, or another machine reached.
pub(super) fn must_be_furnished() -> Result<(), Refusal> {
    let no_cage = |what: &str| Err(Refusal(format!("not in a cage: {what}")));
    let disk = rustix::fs::statfs(TMP)?;
    let size = disk.f_blocks as u64 * disk.f_bsize as u64;
    if disk.f_type as u64 != TMPFS_MAGIC || size > 1 << 30 {
        return no_cage("`/tmp` is no sized memory disk");
    }
    let root = rustix::fs::statvfs("/")?;
    if !root.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY) {
        return no_cage("the host's files can be written");
    }
    let routes = fs::read_to_string("/proc/net/route")?;
    if routes.lines().skip(1).any(|route| !route.starts_with("lo")) {
        return no_cage("there is a way to other machines");
    }
    Ok(())
}

fn disk(place: &str, options: &str) -> Result<(), Refusal> {
    mount(
        "cage",
        place,
        "tmpfs",
        MountFlags::empty(),
        Some(&*c_text(options)),
    )
    .map_err(attempting(format!("cannot mount memory on `{place}`")))
}

fn c_text(text: &str) -> std::ffi::CString {
    std::ffi::CString::new(text).expect("options of ours have no NUL")
}

/// Every mount of the host, in this mount namespace only.
fn make_read_only() -> Result<(), Refusal> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let (place, options) = (unescaped(fields[4]), fields[5]);
        let (is, own) = (
            |name| options.split(',').any(|option| option == name),
            |top: &str| place.starts_with(top),
        );
        if is("ro") || own("/proc") || own("/dev") || own("/sys/fs/cgroup") {
            continue; // those are made anew
        }
        let kept = [
            ("nosuid", MountFlags::NOSUID),
            ("nodev", MountFlags::NODEV),
            ("noexec", MountFlags::NOEXEC),
        ];
        let kept = kept
            .into_iter()
            .filter(|(name, _)| is(name))
            .map(|(_, flag)| flag);
        let flags = kept.fold(MountFlags::BIND | MountFlags::RDONLY, |all, flag| {
            all | flag
        });
        mount_remount(&*place, flags, "")
            .map_err(attempting(format!("cannot make `{place}` read-only")))?;
    }
    Ok(())
}

/// `mountinfo` writes spaces and the like as octal numbers.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// The programs and the interpreter's directory, before the places where they may lie are hidden.
fn keep_programs(plan: &Plan) -> Result<(), Refusal> {
    fs::create_dir_all(BIN)?;
    let own = Path::new(OWN);
    let files = [
        (&plan.hostile, own.join("bin/hostile")),
        (&plan.fairtrial, own.join("fairtrial")),
    ];
    for (from, to) in files {
        fs::write(&to, "")?;
        bind(from, &to)?;
    }
    fs::create_dir(own.join("python"))?;
    bind(&plan.python_home, &own.join("python"))
}

/// The interpreter where it was, if it was in a place that is hidden now.
fn show_interpreter(plan: &Plan) -> Result<(), Refusal> {
    if plan.python.exists() {
        return Ok(());
    }
    fs::create_dir_all(&plan.python_home)?;
    bind(&Path::new(OWN).join("python"), &plan.python_home)
}

fn bind(from: &Path, to: &Path) -> Result<(), Refusal> {
    let what = format!("cannot show `{}` at `{}`", from.display(), to.display());
    mount_bind_recursive(from, to).map_err(attempting(what.clone()))?;
    mount_remount(to, MountFlags::BIND | MountFlags::RDONLY, "").map_err(attempting(what))
}

/// No disk, no memory of the machine's: only devices that everybody may have.
fn devices() -> Result<(), Refusal> {
    let real = Path::new(OWN).join("dev");
    fs::create_dir(&real)?;
    mount_bind("/dev", &real).map_err(attempting("cannot move `/dev` aside"))?;
    disk("/dev", "size=1m,mode=755")?;
    for name in HARMLESS_DEVICES {
        fs::write(Path::new("/dev").join(name), "")?;
        mount_bind(real.join(name), Path::new("/dev").join(name))
            .map_err(attempting(format!("cannot show `/dev/{name}`")))?;
    }
    unmount(&real, rustix::mount::UnmountFlags::DETACH)?;
    for name in ["pts", "shm", "mqueue"] {
        fs::create_dir(Path::new("/dev").join(name))?;
    }
    disk("/dev/shm", "size=512m,mode=1777")?;
    let options = c_text("newinstance,ptmxmode=0666,mode=620");
    mount(
        "devpts",
        "/dev/pts",
        "devpts",
        MountFlags::NOSUID | MountFlags::NOEXEC,
        Some(&*options),
    )
    .map_err(attempting("cannot mount `/dev/pts`"))?;
    // A kernel without message queues has none to be left behind.
    mount(
        "mqueue",
        "/dev/mqueue",
        "mqueue",
        MountFlags::NOSUID | MountFlags::NODEV,
        None,
    )
    .ok();
    symlink("pts/ptmx", "/dev/ptmx")?;
    symlink("/proc/self/fd", "/dev/fd")?;
    for (number, name) in ["stdin", "stdout", "stderr"].iter().enumerate() {
        symlink(
            format!("/proc/self/fd/{number}"),
            Path::new("/dev").join(name),
        )?;
    }
    Ok(())
}

/// In the cage's cgroup namespace a hierarchy begins with the cage. Version 2 shares controllers out only where no
/// process is: so that the engine can have leaves, the suite goes into one itself.
fn control_groups(groups: &[Group]) -> Result<(), Refusal> {
    let top = Path::new("/sys/fs/cgroup");
    if groups.iter().any(|group| group.mount_point != top) {
        disk("/sys/fs/cgroup", "size=1m,mode=755")?;
    }
    for group in groups {
        let (kind, data) = group.to_mount();
        fs::create_dir_all(&group.mount_point)?;
        let data = c_text(data);
        mount(
            "cgroup",
            &group.mount_point,
            kind,
            MountFlags::empty(),
            Some(&*data),
        )
        .map_err(attempting(format!(
            "cannot mount `{}`",
            group.mount_point.display()
        )))?;
        let has = fs::read_to_string(group.mount_point.join("cgroup.controllers"));
        if has.is_ok_and(|has| has.contains("memory")) {
            let suite = group.mount_point.join("suite");
            fs::create_dir(&suite)?;
            fs::write(suite.join("cgroup.procs"), std::process::id().to_string())?;
            fs::write(
                group.mount_point.join("cgroup.subtree_control"),
                "+memory +pids",
            )?;
        }
    }
    Ok(())
}

/// What root inside needs for nothing here: they would reach the whole machine. From the next program on.
fn drop_capabilities() -> Result<(), Refusal> {
    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
    let dangerous = [
        CapabilitySet::SYS_MODULE,
        CapabilitySet::SYS_RAWIO,
        CapabilitySet::SYS_BOOT,
        CapabilitySet::SYS_TIME,
        CapabilitySet::MKNOD,
        CapabilitySet::SYSLOG,
    ];
    for capability in dangerous {
        remove_capability_from_bounding_set(capability)?;
    }
    Ok(())
}

fn network(plan: &Plan) -> Result<(), Refusal> {
    let script = include_str!("../../../../hostile/raise_network.py");
    let addresses = WORLD_ADDRESSES.map(|(_, address)| address);
    let raised = super::command(&plan.python)
        .args(["-I", "-c", script])
        .args(addresses)
        .status()?;
    if !raised.success() {
        return Err(Refusal("the cage's loopback does not come up".into()));
    }
    let resolver = Path::new("/etc/resolv.conf");
    if resolver.is_file() {
        let ours: PathBuf = Path::new(OWN).join("resolv.conf");
        fs::write(&ours, format!("nameserver {}\n", WORLD_ADDRESSES[0].1))?;
        fs::set_permissions(&ours, fs::Permissions::from_mode(0o644))?;
        let real = fs::canonicalize(resolver)?;
        mount_bind(&ours, &real).map_err(attempting("cannot replace `/etc/resolv.conf`"))?;
    }
    Ok(())
}
