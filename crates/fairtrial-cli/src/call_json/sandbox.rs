//! `sandbox` of a call: a level, or an object with a level and options.

use std::path::Path;

use fairtrial_exec::{SANDBOX_KEYS, Sandbox};

use super::field::Field;
use super::object::Object;
use crate::json::Fault;

/// The sandbox; relative paths are those of `base`.
pub(super) fn sandbox(given: Field<'_>, base: &Path) -> Result<Sandbox, Fault> {
    match given.raw.kind() {
        "a string" => Ok(Sandbox::new(given.named()?)),
        "an object" => from_object(given, base),
        kind => Err(given.fault(format!("must be a level or an object, not {kind}"))),
    }
}

fn from_object(given: Field<'_>, base: &Path) -> Result<Sandbox, Fault> {
    let mut object = Object::new("sandbox");
    object.parse(given.raw)?;
    object.check_keys(&[&SANDBOX_KEYS])?;
    let Some(level) = object.get("sandbox.level") else {
        return Err(
            given.fault("`level` is missing (give `none`, `limits`, `confined` or `strict`)")
        );
    };
    let mut sandbox = Sandbox::new(level.named()?);
    set_options(&mut sandbox, &object)?;
    sandbox.resolve(base);
    sandbox
        .validate()
        .map_err(|invalid| Fault::new(object.locate(&invalid.field), invalid.to_string()))?;
    Ok(sandbox)
}

fn set_options(sandbox: &mut Sandbox, object: &Object<'_>) -> Result<(), Fault> {
    if let Some(on_missing) = object.get("sandbox.on_missing") {
        sandbox.on_missing = on_missing.named()?;
    }
    if let Some(network) = object.get("sandbox.network") {
        sandbox.network = network.named()?;
    }
    if let Some(read) = object.get("sandbox.read") {
        sandbox.read = read.strings()?.into_iter().map(Into::into).collect();
    }
    if let Some(write) = object.get("sandbox.write") {
        sandbox.write = write.strings()?.into_iter().map(Into::into).collect();
    }
    if let Some(bytes) = object.liftable("sandbox.scratch_bytes", Field::size)? {
        sandbox.scratch_bytes = bytes;
    }
    if let Some(inodes) = object.liftable("sandbox.scratch_inodes", Field::count)? {
        sandbox.scratch_inodes = inodes;
    }
    if let Some(size) = object.get("sandbox.address_space") {
        sandbox.address_space = Some(size.size()?);
    }
    if let Some(devices) = object.get("sandbox.devices") {
        sandbox.devices = devices.strings()?;
    }
    if let Some(cpus) = object.get("sandbox.cpus") {
        sandbox.cpus = Some(cpus.indices()?);
    }
    Ok(())
}
