//! What a call finds when it begins: path, signals, directories; and what it may raise (EX-34 to EX-37).

use fairtrial_exec::{Call, Isolation, PickledWork, PythonTerms, ResultFormat, Verdict, Work};
use fairtrial_tests::bare;
use fairtrial_tests::{Story, json};
use serde_json::json as j;

use crate::isolation::worker;

/// EX-34
#[tokio::test]
async fn path_entries_are_resolved_made_unique_and_put_first() {
    let story = Story::new();
    story.write("lib/mine.py", "");
    std::os::unix::fs::symlink(story.path().join("lib"), story.path().join("link"))
        .expect("a link");
    let lib = story.path().join("lib");
    let mut call = Story::call("import sys\ndef f():\n    return sys.path", "[]");
    call.python_mut().expect("a source call").python_path = vec![
        lib.join("../lib"),
        lib.clone(),
        lib.join("."),
        story.path().join("other"),
    ];
    let path = json(&story.run(call).await);
    assert_eq!(path[0], j!(lib));
    assert_eq!(path[1], j!(story.path().join("other")));
    let all = path.as_array().expect("a list");
    assert_eq!(all.iter().filter(|entry| **entry == j!(lib)).count(), 1);
    story.end().await;
}

/// EX-34
#[tokio::test]
async fn a_module_on_the_path_shadows_a_preloaded_one() {
    let story = Story::with(|config| config.max_workers = 1);
    story.write("lib/colorsys.py", "mine = True");
    let source = "def f():\n    import colorsys\n    return hasattr(colorsys, 'mine')";
    for isolation in [Isolation::Fresh, Isolation::Reuse] {
        for (shadow, expected) in [(false, false), (true, true), (false, false)] {
            let mut call = Story::call(source, "[]");
            let terms = call.python_mut().expect("a source call");
            terms.isolation = isolation;
            terms.preload = vec!["colorsys".into()];
            if shadow {
                terms.python_path = vec![story.path().join("lib")];
            }
            assert_eq!(json(&story.run(call).await), j!(expected), "{isolation}");
        }
    }
    story.end().await;
}

/// EX-34
#[tokio::test]
async fn a_thousand_paths_do_not_lengthen_sys_path() {
    let story = Story::with(|config| config.max_workers = 1);
    let source = "import sys\ndef f():\n    return [len(sys.path), len(sys.path_importer_cache)]";
    let call = |number: usize| {
        let mut call = Story::reuse_call(source, "[]");
        call.python_mut().expect("a source call").python_path =
            vec![story.path().join(number.to_string())];
        call
    };
    let first = json(&story.run(call(0)).await);
    let mut last = first.clone();
    for number in 1..1000 {
        last = json(&story.run(call(number)).await);
    }
    assert_eq!(last, first);
    story.end().await;
}

/// EX-35
#[tokio::test]
async fn signals_are_at_their_defaults_when_a_call_begins() {
    let source = "import signal\ndef f():\n    \
        names = ('INT', 'TERM', 'HUP', 'QUIT', 'USR1', 'USR2', 'CHLD', 'PIPE')\n    \
        handlers = {name: signal.getsignal(getattr(signal, 'SIG' + name)) for name in names}\n    \
        shown = {name: 'python' if h is signal.default_int_handler else h.name for name, h in handlers.items()}\n    \
        status = open('/proc/self/status').read().split()\n    \
        return shown, status[status.index('SigBlk:') + 1]";
    let story = Story::new();
    for call in [Story::call(source, "[]"), Story::reuse_call(source, "[]")] {
        let found = json(&story.run(call).await);
        assert_eq!(
            found,
            j!({"$tuple": [
                {"INT": "python", "TERM": "SIG_DFL", "HUP": "SIG_DFL", "QUIT": "SIG_DFL", "USR1": "SIG_DFL",
                 "USR2": "SIG_DFL", "CHLD": "SIG_DFL", "PIPE": "SIG_IGN"},
                "0000000000000000",
            ]})
        );
    }
    story.end().await;
}

/// EX-36
#[tokio::test]
async fn source_and_command_calls_have_a_scratch_directory_of_their_own() {
    let story = Story::new();
    let source = "import os\ndef f():\n    tmp = os.environ['TMPDIR']\n    \
        return [os.getcwd() == tmp, oct(os.stat(tmp).st_mode & 0o7777), os.listdir(tmp), os.readlink('/proc/self/fd/0')]";
    let expected = j!([true, "0o700", [], "/dev/null"]);
    assert_eq!(json(&story.source(source, "[]").await), expected);
    assert_eq!(json(&story.reuse(source, "[]").await), expected);
    let script =
        "test \"$(pwd)\" = \"$TMPDIR\" && stat -c %a . && ls -A && readlink /proc/self/fd/0";
    let outcome = story.run(bare::command(["sh", "-c", script])).await;
    assert_eq!(outcome.stdout.text(), "700\n/dev/null\n");
    story.end().await;
}

/// EX-36, SB-21
#[tokio::test]
async fn a_given_cwd_is_kept_and_one_that_cannot_be_entered_is_a_failed_set_up() {
    let story = Story::new();
    let file = story.write("dir/file", "");
    let source =
        "import os\ndef f():\n    return [os.getcwd(), os.environ['TMPDIR'] != os.getcwd()]";
    for (cwd, good) in [
        (file.parent().expect("it has one").to_path_buf(), true),
        (file.clone(), false),
        (story.path().join("missing"), false),
    ] {
        for mut call in [
            Story::call(source, "[]"),
            Story::reuse_call(source, "[]"),
            bare::command(["pwd"]),
        ] {
            call.cwd = Some(cwd.clone());
            let command = matches!(call.work, Work::Command(_));
            let outcome = story.run(call).await;
            if !good {
                assert_eq!(outcome.verdict, Verdict::SetupFailed, "{cwd:?}");
                let message = outcome.error.expect("a failed set-up says why").message;
                assert!(message.contains(&*cwd.to_string_lossy()), "{message}");
            } else if command {
                assert_eq!(outcome.stdout.text(), format!("{}\n", cwd.display()));
            } else {
                assert_eq!(json(&outcome), j!([cwd, true]));
            }
        }
    }
    story.end().await;
}

/// EX-36: the pickles are `(function, args, {})` in protocol 0.
#[tokio::test]
async fn pickled_calls_keep_the_callers_cwd_and_tmpdir() {
    let story = Story::with(|config| {
        config
            .host_env
            .insert("TMPDIR".into(), "/the/callers/tmp".into());
    });
    let here = std::env::current_dir().expect("there is one");
    for (pickle, expected) in [
        (
            &b"(cos\ngetcwd\n)}t."[..],
            here.to_string_lossy().into_owned(),
        ),
        (
            &b"(cos\ngetenv\n(VTMPDIR\nt}t."[..],
            "/the/callers/tmp".to_owned(),
        ),
    ] {
        let outcome = story.run(pickled(pickle, Isolation::Reuse)).await;
        assert_eq!(json(&outcome), j!(expected));
    }
    story.end().await;
}

/// EX-37
#[tokio::test]
async fn whatever_is_raised_is_an_exception_and_a_reused_worker_survives_it() {
    let story = Story::new();
    let classes = [
        ("KeyError('x')", "KeyError"),
        ("SystemExit(3)", "SystemExit"),
        ("KeyboardInterrupt()", "KeyboardInterrupt"),
        ("GeneratorExit()", "GeneratorExit"),
        ("BaseException('b')", "BaseException"),
        ("Mine('m')", "Mine"),
        ("MemoryError()", "MemoryError"),
        ("RecursionError()", "RecursionError"),
    ];
    let mut workers = Vec::new();
    for make in [Story::call, Story::reuse_call] {
        workers.clear();
        for (raised, kind) in classes {
            let source =
                format!("class Mine(BaseException):\n    pass\ndef f():\n    raise {raised}");
            let outcome = story.run(make(&source, "[]")).await;
            assert_eq!(outcome.verdict, Verdict::Exception, "{raised}");
            assert_eq!(outcome.error.as_ref().expect("an error").kind, kind);
            workers.push(worker(&outcome));
        }
    }
    let here = story.reuse("def f():\n    return 1", "[]").await;
    workers.push(worker(&here));
    workers.dedup();
    assert_eq!(workers.len(), 1, "one worker served them all");
    story.end().await;
}

fn pickled(pickle: &[u8], isolation: Isolation) -> Call {
    let mut body = (pickle.len() as u64).to_le_bytes().to_vec();
    body.extend_from_slice(&[0; 8]); // no buffers out of band
    body.extend_from_slice(pickle);
    let python = PythonTerms {
        isolation,
        result: ResultFormat::Data,
        ..PythonTerms::default()
    };
    Call::new(Work::Pickled(PickledWork {
        body: body.into(),
        python,
    }))
}
