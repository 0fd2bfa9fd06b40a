//! Refusals, and the credentials that come after them.

use super::*;
use crate::device::objects::store::perform;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A store that takes the credentials of `right` only: those that were found at that time.
struct Rotated {
    found: usize,
    right: Arc<AtomicUsize>,
    place: Place,
}

impl Protocol for Rotated {
    async fn once(&self, request: &Request) -> Outcome {
        if self.found == self.right.load(Ordering::SeqCst) {
            return Ok(Reply::default());
        }
        Err(self.place.say(FailureKind::Forbidden, request.kind(), request.name(), "ExpiredToken (HTTP 400)"))
    }

    async fn page(&self, _: &str, _: Option<String>) -> std::result::Result<Page, Failure> {
        Ok(Page { listed: Vec::new(), next: None })
    }

    fn place(&self) -> &Place {
        &self.place
    }
}

#[test]
fn refused_client_reads_its_credentials_again() {
    let (found, right) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(1)));
    let facts = StoreFacts {
        name: "s3://b".into(),
        endpoint: String::new(),
        appends: false,
        parts_max: 1,
        appends_check_version: false,
        streams: false,
    };
    let second = Duration::from_secs(10);
    let effort = Effort { attempt_timeout: second, read_deadline: second, threads: 1 };
    let (of_connect, times) = (right.clone(), found.clone());
    let connect: Connect<Rotated> = Box::new(move || {
        let (found, right) = (times.fetch_add(1, Ordering::SeqCst) + 1, of_connect.clone());
        Box::pin(async move {
            let place = Place { bucket: "b".into(), endpoint: "http://127.0.0.1:1".into() };
            Ok(Rotated { found, right, place })
        })
    });
    let client = Client::connect(facts, effort, "none", connect).expect("connects");
    let send = || perform(&client, Request::Head { name: "a".into() });
    assert!(send().is_ok());
    assert_eq!(found.load(Ordering::SeqCst), 1, "credentials that work are kept");
    right.store(2, Ordering::SeqCst);
    assert_eq!(send().expect_err("expired").kind, FailureKind::Forbidden);
    std::thread::sleep(RENEWAL_PAUSE);
    assert!(send().is_ok(), "with the credentials of now");
    // Refusals alone do not read them again and again.
    right.store(9, Ordering::SeqCst);
    let began = Instant::now();
    let most = |elapsed: Duration| 3 + elapsed.as_millis() as usize / RENEWAL_PAUSE.as_millis() as usize;
    for _ in 0..200 {
        assert!(send().is_err());
    }
    let times = found.load(Ordering::SeqCst);
    assert!(times <= most(began.elapsed()), "{times} times in {:?}", began.elapsed());
}
