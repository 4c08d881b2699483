//! H29 to H34: secrets, sockets, networks.

use super::{Check, Trial, ok, python, source, story};
use crate::expect::Expected::Denied;
use crate::stories::Story;

pub(super) fn rows() -> Vec<Trial> {
    vec![
        python("H29", "library", source!("h29_hunt.py"), "")
            .everywhere(ok())
            .check(Check::NothingFound)
            .fast(),
        story("H29", "command line", Story::Hunt)
            .everywhere(ok())
            .check(Check::NothingFound)
            .fast(),
        python("H30", "abstract", source!("h30_sockets.py"), "abstract")
            .above_none(Denied)
            .needs(&["signal_scope"])
            .fast(),
        python("H30", "paths", source!("h30_sockets.py"), "paths")
            .at_strict(Denied)
            .confined_as_strict(),
        python("H31", "", source!("h31_tcp.py"), "")
            .at_strict(Denied)
            .confined_as_strict()
            .needs(&["network"]),
        python("H32", "", source!("h32_udp.py"), "")
            .at_strict(Denied)
            .confined_as_strict()
            .needs(&["network"]),
        python("H33", "", source!("h33_raw_sockets.py"), "")
            .at_strict(Denied)
            .confined_as_strict()
            .needs(&["seccomp"]),
        python("H34", "", source!("h34_server.py"), "")
            .everywhere(ok())
            .fast(),
    ]
}
