//! Each rule alone.

use super::*;
use crate::base::Csn;

#[test]
fn each_rule_requires_the_watermark_that_it_says() {
    let required =
        |name, csn, dsn| rule_named(name, 2, RingSize::MIN).required_watermark(Csn(csn), Csn(dsn)).0;
    assert_eq!(required(Dependency::LogOrder, 44, 41), 0);
    assert_eq!(required(Dependency::Csn, 44, 41), 44);
    for name in [Dependency::Dsn, Dependency::Exact, Dependency::Gsn, Dependency::GsnRfa] {
        assert_eq!(required(name, 44, 41), 41);
    }
}
