use super::*;
use crate::call::{Call, CommandWork, PickledWork, PythonTerms, SourceWork, Work};

fn parsed(text: &str) -> Sandbox {
    text.parse().expect(text)
}

/// What is wrong with a text, as `--sandbox` says it.
fn objection(text: &str) -> String {
    match text.parse::<Sandbox>() {
        Ok(sandbox) => Sandbox::worded(&sandbox.validate().expect_err(text)),
        Err(problem) => problem,
    }
}

/// SB-16, SB-27, SB-45
#[test]
fn each_level_has_its_own_defaults() {
    let table = [
        (Level::None, OnMissing::Degrade, Network::Host, None, None),
        (Level::Limits, OnMissing::Degrade, Network::Host, None, None),
        (Level::Confined, OnMissing::Fail, Network::None, None, None),
        (
            Level::Strict,
            OnMissing::Fail,
            Network::None,
            Some(1 << 30),
            Some(50_000),
        ),
    ];
    for (level, on_missing, network, bytes, inodes) in table {
        let sandbox = Sandbox::new(level);
        assert_eq!((sandbox.on_missing, sandbox.network), (on_missing, network));
        assert_eq!(
            (sandbox.scratch_bytes, sandbox.scratch_inodes),
            (bytes, inodes)
        );
        assert_eq!((sandbox.address_space, &sandbox.cpus), (None, &None));
        assert_eq!(sandbox.validate(), Ok(()), "{level}");
        assert_eq!(parsed(&level.to_string()), sandbox);
    }
}

/// SB-14
#[test]
fn an_option_is_refused_below_the_level_that_has_its_mechanism() {
    let table = [
        ("on_missing=fail", Level::None),
        ("network=host", Level::None),
        ("cpus=0", Level::Limits),
        ("scratch_bytes=none", Level::None),
        ("write=/w", Level::Limits),
        ("address_space=4G", Level::Limits),
        ("network=none", Level::Confined),
        ("network=loopback", Level::Strict),
        ("read=/r", Level::Confined),
        ("scratch_bytes=1M", Level::Strict),
        ("scratch_inodes=9", Level::Strict),
        ("devices=nvidia", Level::Strict),
    ];
    for (option, least) in table {
        for level in Level::ALL {
            let text = format!("{level},{option}");
            if level >= least {
                assert_eq!(parsed(&text).validate(), Ok(()), "{text}");
                continue;
            }
            let key = option.split('=').next().unwrap();
            let wanted =
                format!("`{key}`: level `{level}` cannot do that; use `{least}`, or leave it out");
            assert_eq!(objection(&text), wanted);
        }
    }
}

/// SB-14, SB-69
#[test]
fn what_means_nothing_is_refused_with_a_suggestion() {
    let table = [
        (
            "jail",
            "unknown level `jail`; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        (
            "",
            "unknown level ``; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        (
            "network=none",
            "unknown level `network=none`; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        (
            "strict,netwrk=none",
            "unknown key `netwrk` (did you mean `network`?)",
        ),
        (
            "strict,zzz=1",
            "unknown key `zzz` (the keys are `on_missing`, `network`, `read`, `write`, `scratch_bytes`, \
             `scratch_inodes`, `address_space`, `devices`, `cpus`)",
        ),
        (
            "strict,read",
            "`read` is not KEY=VALUE; write for example `strict,on_missing=fail`",
        ),
        (
            "strict,",
            "`` is not KEY=VALUE; write for example `strict,on_missing=fail`",
        ),
        (
            "strict,network=lo",
            "`network`: `lo` is none of `none`, `loopback` and `host`",
        ),
        (
            "strict,network=none,network=host",
            "`network`: is given twice; give it once",
        ),
        (
            "strict,on_missing=warn",
            "`on_missing`: `warn` is neither `fail` nor `degrade`",
        ),
        (
            "strict,read=",
            "`read`: names no path; write for example `read=/data`",
        ),
        (
            "strict,read=data",
            "`read`: must be an absolute path, not `data`",
        ),
        ("strict,write=/a\0b", "`write`: has a NUL character"),
        (
            "strict,scratch_bytes=5X",
            "`scratch_bytes`: unknown unit `x` in `5X`; use K, M, G or T, as in `512M`",
        ),
        (
            "strict,scratch_inodes=0",
            "`scratch_inodes`: `0` is not a whole number greater than 0",
        ),
        (
            "strict,address_space=0",
            "`address_space`: `0` is not a size; write for example `512M` or `2G`",
        ),
        (
            "strict,devices=gpu",
            "`devices`: unknown device `gpu`; the only one is `nvidia`",
        ),
        (
            "strict,devices=nvidia,address_space=4G",
            "`address_space`: does not go with device `nvidia`, whose driver reserves far more than it uses; \
             leave one of them out",
        ),
        (
            "none,cpus=a",
            "`cpus`: `a` is no processor; write for example `cpus=0` or `cpus=0-3`",
        ),
        (
            "none,cpus=3-1",
            "`cpus`: `3-1` is no processor; write for example `cpus=0` or `cpus=0-3`",
        ),
        (
            "none,cpus=0-99999999999",
            "`cpus`: `0-99999999999` is no processor; write for example `cpus=0` or `cpus=0-3`",
        ),
    ];
    for (text, message) in table {
        assert_eq!(objection(text), message, "{text}");
    }
    let mut empty = Sandbox::new(Level::Limits);
    empty.cpus = Some(Vec::new());
    let invalid = empty.validate().unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "`sandbox.cpus`: names no processor; leave it out to allow all"
    );
    empty.cpus = Some(vec![0, 9000]);
    let invalid = empty.validate().unwrap_err();
    assert_eq!(invalid.problem, "there is no processor 9000");
}

/// SB-14, SB-16
#[test]
fn the_command_line_can_say_everything() {
    let text = "strict, on_missing=degrade,network=loopback,read=/r,read=r2,write=/w,scratch_bytes=512M,\
                scratch_inodes=none,address_space=none,devices=nvidia,cpus=7,cpus=0-2";
    let mut sandbox = parsed(text);
    sandbox.resolve(Path::new("/base"));
    let wanted = Sandbox {
        level: Level::Strict,
        on_missing: OnMissing::Degrade,
        network: Network::Loopback,
        read: vec!["/r".into(), "/base/r2".into()],
        write: vec!["/w".into()],
        scratch_bytes: Some(512 << 20),
        scratch_inodes: None,
        address_space: None,
        devices: vec!["nvidia".into()],
        cpus: Some(vec![7, 0, 1, 2]),
    };
    assert_eq!(sandbox, wanted);
    assert_eq!(sandbox.validate(), Ok(()));
}

/// SB-15
#[test]
fn the_variable_says_what_the_command_line_can_and_is_named_when_it_is_wrong() {
    let read = |text: &str| Sandbox::from_variable(Some(OsStr::new(text)));
    assert_eq!(Sandbox::from_variable(None), Ok(None));
    assert_eq!(read(" "), Ok(None));
    let mut wanted = Sandbox::new(Level::None);
    wanted.on_missing = OnMissing::Fail;
    assert_eq!(read(" none,on_missing=fail\n"), Ok(Some(wanted)));
    let table = [
        (
            "jail",
            "unknown level `jail`; the levels are `none`, `limits`, `confined` and `strict`",
        ),
        ("none,raed=/", "unknown key `raed` (did you mean `read`?)"),
        (
            "none,read=x",
            "`read`: level `none` cannot do that; use `confined`, or leave it out",
        ),
    ];
    for (text, problem) in table {
        assert_eq!(
            read(text),
            Err(InvalidCall::new("FAIRTRIAL_SANDBOX", problem))
        );
    }
}

/// SB-15
#[test]
fn a_call_that_says_nothing_has_the_default_of_its_kind() {
    let python = PythonTerms::default;
    let table = [
        (
            Work::Source(SourceWork {
                source: String::new(),
                filename: String::new(),
                function: "f".into(),
                arguments: Vec::new().into(),
                python: python(),
            }),
            DEFAULT_LEVEL,
        ),
        (
            Work::Command(CommandWork {
                argv: vec!["true".into()],
                stdin: Vec::new(),
            }),
            DEFAULT_LEVEL,
        ),
        (
            Work::Pickled(PickledWork {
                body: Vec::new().into(),
                python: python(),
            }),
            Level::None,
        ),
    ];
    for (work, level) in table {
        let call = Call::new(work);
        assert_eq!(call.sandbox, Sandbox::new(level));
        assert_eq!(call.validate(), Ok(()));
    }
}

/// SB-14
#[test]
fn no_call_starts_whose_sandbox_is_refused() {
    let mut call = Call::command(["true"]);
    call.sandbox.network = Network::None;
    assert_eq!(call.validate().unwrap_err().field, "sandbox.network");
}
