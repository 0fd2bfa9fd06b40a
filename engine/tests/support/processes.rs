//! Tests that must not share a process with others: they run this program again, for one test
//! alone.

use std::process::Command;

/// A command that runs the test `name` of `module` (its `module_path!()`), and no other, in a
/// process of its own.
pub fn one_test(module: &str, name: &str) -> Command {
    let module = module.split_once("::").map_or("", |(_, module)| module);
    let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture", "--test-threads=1"]);
    command
}

/// Runs `body`, which is all of the test `name` of `module`, in a process of its own: no thread of
/// another test takes a log that threads of this one should have, and no memory of another test is
/// measured.
pub fn in_own_process(module: &str, name: &str, body: impl FnOnce()) {
    const NAME: &str = "QUENCH_OWN_PROCESS";
    if std::env::var_os(NAME).is_some_and(|own| own == name) {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).expect("linux");
        return body();
    }
    let output = one_test(module, name).env(NAME, name).output().expect("starts");
    print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "in a process of its own: {}", output.status);
}
