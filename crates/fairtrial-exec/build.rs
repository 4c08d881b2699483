//! Builds the launcher and hands its bytes to the engine, so that one file is enough to run.
//!
//! The launcher links this very crate without its default features, which a dependency cannot express (it would be a
//! cycle), so a second cargo builds it, in a target directory of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    if std::env::var_os("CARGO_FEATURE_ENGINE").is_none() {
        return;
    }
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let launcher = manifest.join("../fairtrial-launcher");
    for watched in [
        launcher.join("src"),
        launcher.join("Cargo.toml"),
        manifest.join("src/linux"),
        manifest.join("src/protocol.rs"),
        manifest.join("src/protocol"),
        manifest.join("src/lib.rs"),
        manifest.join("build.rs"),
    ] {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    // Static where the C library allows it (SB-1), so that it also runs in a root without one.
    let built = build(&launcher, &out, "-C target-feature=+crt-static")
        .or_else(|| build(&launcher, &out, ""))
        .expect("the launcher does not build; run `cargo build -p fairtrial-launcher` to see why");
    println!("cargo::rustc-env=FAIRTRIAL_LAUNCHER={}", built.display());
}

#[expect(
    clippy::disallowed_methods,
    reason = "a build script is not the engine"
)]
fn build(launcher: &Path, out: &Path, flags: &str) -> Option<PathBuf> {
    let target = variable("TARGET");
    let target_dir = out.join("launcher");
    let status = Command::new(variable("CARGO"))
        .args([
            "build",
            "--quiet",
            "--profile",
            "launcher",
            "--target",
            &target,
            "--target-dir",
        ])
        .arg(&target_dir)
        .arg("--manifest-path")
        .arg(launcher.join("Cargo.toml"))
        .env("RUSTFLAGS", flags)
        // The inner build's own script must not take the outer one's features for its own: it would build for ever.
        .env_remove("CARGO_FEATURE_ENGINE")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .ok()?;
    status
        .success()
        .then(|| target_dir.join(target).join("launcher/fairtrial-launcher"))
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets `{name}` for build scripts"))
}
