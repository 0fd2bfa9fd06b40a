//! Runs single tests in a process of their own: this program starts itself again for one test.

use std::process::Command;

/// Returns a command that runs only the test `name` of `module` (its `module_path!()`) in a new
/// process.
pub fn one_test(module: &str, name: &str) -> Command {
    let module = module.split_once("::").map_or("", |(_, module)| module);
    let mut command = Command::new(std::env::current_exe().expect("a test is a program"));
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture", "--test-threads=1"]);
    command
}

/// Runs `body`, the whole test `name` of `module`, in a process of its own. So threads of other
/// tests take none of its logs, and memory of other tests is not measured.
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
