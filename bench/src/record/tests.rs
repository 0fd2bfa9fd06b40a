//! Tests of `record`.

record! {
    /// For the test.
    sample {
        /// A number.
        COUNT: u16,
        /// Another, not aligned.
        SUM: i64,
        /// A text.
        NAME: [u8; 6],
    }
}

#[test]
fn fields_lie_side_by_side_and_do_not_touch_each_other() {
    let mut row = vec![0xff; sample::BYTES + 3];
    assert_eq!(sample::BYTES, 16);
    sample::COUNT.set(&mut row, 7);
    sample::SUM.set(&mut row, -5);
    sample::NAME.put(&mut row, b"abc");
    assert_eq!((sample::COUNT.get(&row), sample::SUM.add(&mut row, 3)), (7, -2));
    assert_eq!((sample::NAME.text(&row), sample::NAME.bytes(&row)), (&b"abc"[..], &b"abc\0\0\0"[..]));
    assert_eq!(row[..2], [7, 0]);
    assert_eq!(row[16..], [0xff; 3]);
}
