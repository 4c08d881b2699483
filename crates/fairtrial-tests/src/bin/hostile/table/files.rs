//! H24 to H28: files that are not what they seem, and other people's.

use fairtrial_exec::Verdict::{BadResult, Ok};

use super::{Trial, ok, python, source};
use crate::expect::Expected::{Denied, OneOf};

pub(super) fn rows() -> Vec<Trial> {
    vec![
        python(
            "H24",
            "its contents",
            source!("h24_swap_scratch.py"),
            "contents",
        )
        .everywhere(ok())
        .fast(),
        python("H24", "itself", source!("h24_swap_scratch.py"), "itself")
            .everywhere(ok())
            .fast(),
        python("H25", "", source!("h25_rewrite_result.py"), "")
            .everywhere(OneOf(&[Ok, BadResult]))
            .fast(),
        python("H26", "", source!("h26_write_elsewhere.py"), "")
            .above_none(Denied)
            .needs(&["write_scope"])
            .fast(),
        python("H27", "", source!("h27_read_secrets.py"), "")
            .at_strict(Denied)
            .confined_as_strict()
            .needs(&["mountns"]),
        python("H28", "", source!("h28_names.py"), "")
            .everywhere(ok())
            .fast(),
    ]
}
