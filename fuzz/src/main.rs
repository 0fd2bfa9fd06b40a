//! Writes the initial inputs to `fuzz/corpus`, beside those that fuzzing found.

use quench_fuzz::seeds::seeds;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (target, inputs) in seeds() {
        let directory = corpus.join(target);
        std::fs::create_dir_all(&directory)?;
        for (name, bytes) in inputs {
            std::fs::write(directory.join(name), bytes)?;
        }
    }
    Ok(())
}
