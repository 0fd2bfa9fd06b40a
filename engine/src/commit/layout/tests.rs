//! Unit tests of `layout`.

use super::*;

#[test]
fn there_are_as_many_logs_as_the_layout_or_the_setting_says() {
    let base = |preset, logs| Settings { preset, logs, ..Settings::default() };
    let count = |preset, logs| log_count(&base(preset, logs), 6);
    assert_eq!(count(Preset::Autonomous, 0), 6);
    assert_eq!(count(Preset::Autonomous, 3), 3);
    assert_eq!(count(Preset::Group, 0), 1);
    assert_eq!(count(Preset::Restricted, 0), 3);
    assert_eq!(log_count(&base(Preset::Restricted, 0), 2), 2, "a restricted log is one of several");
    assert_eq!(log_count(&base(Preset::Auto, 0), 2), 1);
    let by_page = Settings { layout: Some(Layout::ByPage), ..base(Preset::Auto, 0) };
    assert_eq!((log_count(&by_page, 6), log_count(&by_page, 1)), (6, 2));
    assert_eq!(log_count(&Settings { threads_per_log: 4, ..base(Preset::Restricted, 0) }, 6), 2);
    assert_eq!(log_count(&Settings { layout: Some(Layout::PerThread), ..base(Preset::Group, 0) }, 6), 6);
    let many = Settings { preset: Preset::Autonomous, ..Settings::default() };
    assert_eq!(log_count(&many, 256), 60, "no more than the log has segments for");
    let chosen = Settings { logs: log_count(&many, 256), ..many };
    chosen.validate().expect("what is chosen is allowed");
}
