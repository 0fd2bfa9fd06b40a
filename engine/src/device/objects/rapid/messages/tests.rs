//! The bytes of messages as Google's own library writes them (`protobuf` 5.29.3, `storage.proto` of
//! 2026).

use super::*;

/// Checks that a message has these bytes, and is read from them.
#[track_caller]
fn same<M: Message + Default + PartialEq + std::fmt::Debug>(message: &M, hex: &str) {
    let written: String = message.encode_to_vec().iter().map(|byte| format!("{byte:02x}")).collect();
    // Fields may stand in any order.
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    assert_eq!(M::decode(&bytes[..]).as_ref(), Ok(message));
    assert_eq!(written.len(), hex.len(), "{written}");
}

fn handle() -> Option<BidiWriteHandle> {
    Some(BidiWriteHandle { handle: Bytes::from_static(b"h") })
}

fn object(name: &str) -> Object {
    Object { name: name.into(), ..Object::default() }
}

#[test]
fn messages_of_appends_have_the_bytes_of_the_reference() {
    let bucket = "projects/_/buckets/b";
    let spec = AppendObjectSpec {
        bucket: bucket.into(),
        object: "k".into(),
        generation: 7,
        routing_token: Some("t".into()),
        write_handle: handle(),
    };
    let data = ChecksummedData::new(Bytes::from_static(b"abc"));
    assert_eq!(data.crc32c, Some(0x364b_3fb7));
    assert!(data.is_whole());
    let append = BidiWriteObjectRequest {
        first_message: Some(FirstMessage::AppendObjectSpec(spec)),
        write_offset: 300,
        checksummed_data: Some(data),
        state_lookup: true,
        flush: true,
        finish_write: true,
    };
    let hex = "18ac02220a0a0361626315b73f4b363801400148015a230a1470726f6a656374732f5f2f6275636b6574732f\
               6212016b18073201743a030a0168";
    same(&append, hex);
    let resource = Some(Object { bucket: bucket.into(), ..object("k") });
    let spec = WriteObjectSpec { resource, if_generation_match: Some(0), appendable: Some(true) };
    let first_message = Some(FirstMessage::WriteObjectSpec(spec));
    let create = BidiWriteObjectRequest { first_message, ..BidiWriteObjectRequest::default() };
    same(&create, "121f0a190a016b121470726f6a656374732f5f2f6275636b6574732f6218004801");
    let finalize_time = Some(Timestamp { seconds: 5 });
    let bucket = "b".into();
    let resource = Object { bucket, generation: 7, size: 9, finalize_time, ..object("k") };
    let write_status = Some(WriteStatus::Resource(resource));
    let answer = BidiWriteObjectResponse { write_status, write_handle: handle() };
    same(&answer, "120f0a016b12016218073009a2020208051a030a0168");
    let write_status = Some(WriteStatus::PersistedSize(77));
    same(&BidiWriteObjectResponse { write_status, write_handle: None }, "084d");
}

#[test]
fn messages_of_reads_have_the_bytes_of_the_reference() {
    let read_object_spec = Some(BidiReadObjectSpec {
        bucket: "b".into(),
        object: "k".into(),
        generation: 7,
        read_handle: Some(BidiReadHandle { handle: Bytes::from_static(b"h") }),
        routing_token: Some("t".into()),
    });
    let range = ReadRange { read_offset: 1, read_length: 2, read_id: 3 };
    let request = BidiReadObjectRequest { read_object_spec, read_ranges: vec![range] };
    same(&request, "0a100a016212016b18076a030a01687201744206080110021803");
    let checksummed_data = Some(ChecksummedData { content: Bytes::from_static(b"a"), crc32c: Some(1) });
    let piece = ObjectRangeData { checksummed_data, read_range: Some(range), range_end: true };
    assert!(!piece.checksummed_data.clone().unwrap().is_whole());
    let answer = BidiReadObjectResponse { metadata: Some(object("k")), object_data_ranges: vec![piece] };
    same(&answer, "22030a016b32140a080a0161150100000012060801100218031801");
    let (parent, page_token, prefix) = ("b".into(), "t".into(), "p".into());
    same(&ListObjectsRequest { parent, page_token, prefix }, "0a01621a0174320170");
    let answer = ListObjectsResponse { objects: vec![object("k")], next_page_token: "t".into() };
    same(&answer, "0a030a016b1a0174");
    let (bucket, object, generation) = ("b".to_string(), "k".to_string(), 7);
    same(&DeleteObjectRequest { bucket, object, generation }, "0a016212016b2007");
    let (bucket, object) = ("b".into(), "k".into());
    same(&GetObjectRequest { bucket, object, generation }, "0a016212016b1807");
    let (location, storage_class) = ("l".into(), RAPID_CLASS.into());
    same(&Bucket { name: "n".into(), location, storage_class }, "0a016e2a016c3a055241504944");
}

#[test]
fn redirect_is_found_in_the_details_of_a_status() {
    let hex = "080a12016d1a520a44747970652e676f6f676c65617069732e636f6d2f676f6f676c652e73746f726167652e\
               76322e4269646957726974654f626a656374526564697265637465644572726f72120a0a017412030a01681807";
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    let found = RpcStatus::detail(&bytes, "BidiWriteObjectRedirectedError");
    let (routing_token, write_handle, generation) = (Some("t".into()), handle(), Some(7));
    assert_eq!(found, Some(BidiWriteObjectRedirectedError { routing_token, write_handle, generation }));
    assert_eq!(
        RpcStatus::detail::<BidiReadObjectRedirectedError>(&bytes, "BidiReadObjectRedirectedError"),
        None
    );
    assert_eq!(RpcStatus::detail::<Empty>(&[0xff], "Empty"), None);
}
