//! Tests of the points as commands, and of names of figures.

use super::*;
use clap::Parser;
use quench_bench::peers::NoPeers;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    bench: BenchArgs,
}

#[test]
fn every_point_is_a_command_of_this_program() {
    for depth in [Depth::QUICK, Depth::FULL] {
        for figure in catalogue::all().expect("the catalogue") {
            for point in points(&figure, depth) {
                let command = point.command.join(" ");
                let words = ["bench"].into_iter().chain(command.split(' '));
                let line = Line::try_parse_from(words)
                    .unwrap_or_else(|error| panic!("{}: {command}: {error}", figure.id));
                line.bench
                    .check(&NoPeers)
                    .unwrap_or_else(|error| panic!("{}: {command}: {error}", figure.id));
            }
        }
    }
}

#[test]
fn names_choose_figures_by_their_beginning() {
    let ids = |names: &[&str]| -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        chosen(&names).expect("figures").iter().map(|figure| figure.id.clone()).collect()
    };
    assert_eq!(ids(&["ac-f9"]), ["AC-F9a", "AC-F9b", "AC-F9c"]);
    assert_eq!(ids(&["AC-F1"]), ["AC-F1"]);
    assert_eq!(ids(&["MS-F9", "GC-T1"]), ["MS-F9", "GC-T1"]);
    assert_eq!(ids(&["ms-x"]), ["MS-X1", "MS-X2", "MS-X3"]);
    assert!(ids(&["NVM"]).len() > 5 && ids(&[]).len() > 70);
    let error = chosen(&["XY-F1".to_string()]).expect_err("no such figure");
    assert!(error.to_string().contains("XY-F1 is no figure"), "{error}");
}

#[test]
fn points_of_several_figures_are_measured_once() {
    let figures = catalogue::all().expect("the catalogue");
    let commands = |id: &str| -> Vec<String> {
        let figure = figures.iter().find(|figure| figure.id == id).expect("a figure");
        points(figure, Depth::FULL).iter().map(|point| point.command.join(" ")).collect()
    };
    let of_f9 = commands("MS-F9");
    assert!(commands("MS-F11").iter().all(|command| of_f9.contains(command)));
    assert!(commands("ELR-F4").iter().all(|command| commands("ELR-F3").contains(command)));
}
