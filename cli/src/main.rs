//! The `quench` program; see the library.

fn main() -> std::process::ExitCode {
    quench_cli::main()
}
