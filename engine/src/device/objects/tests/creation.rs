//! Processes that open a place while another one creates a database there.

use super::super::Outcome;
use super::*;

/// A store whose manifest comes while its objects are listed: the list has the log without it.
#[derive(Debug)]
struct Created {
    inner: MemoryStore,
    is_late: Arc<AtomicBool>,
}

impl ObjectStore for Created {
    fn start(&self, request: Request, done: Done) {
        if !self.is_late.load(Ordering::SeqCst) {
            return self.inner.start(request, done);
        }
        if request.name() == MANIFEST_NAME {
            return done(Err(Failure { kind: FailureKind::Absent, what: "not yet".into() }));
        }
        let is_late = self.is_late.clone();
        let listed = move |mut outcome: Outcome| {
            if let Ok(reply) = &mut outcome {
                reply.listed.retain(|object| object.name != MANIFEST_NAME);
            }
            is_late.store(false, Ordering::SeqCst);
            done(outcome);
        };
        self.inner.start(request, Box::new(listed));
    }

    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }
}

#[test]
fn a_database_that_is_created_beside_a_list_is_no_corruption() {
    let store = MemoryStore::new(true);
    open(&store).expect("new").create_table("t").expect("new");
    let is_late = Arc::new(AtomicBool::new(true));
    let late = Arc::new(Created { inner: store.clone(), is_late: is_late.clone() });
    let storage = ObjectStorage::new(late.clone(), late.facts(), Options::default());
    let settings = Settings::default().with(|s| s.memory_bytes = 2 << 20);
    let opened = Database::builder().settings(settings).storage(Arc::new(storage)).open("objects");
    let error = opened.expect_err("there was no database a moment ago");
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(!is_late.load(Ordering::SeqCst), "its objects were listed");
    open(&store).expect("is there").table("t").expect("is there");
    store.remove(MANIFEST_NAME);
    let error = open(&store).expect_err("its manifest is gone");
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    assert!(error.to_string().contains("there is no manifest, but objects of a database"), "{error}");
}
