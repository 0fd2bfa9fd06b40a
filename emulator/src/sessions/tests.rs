//! Unit tests of sessions: tokens that were changed, that have ended, that survive a restart.

use super::*;

#[test]
fn token_is_found_again_after_a_restart() {
    let sessions = Sessions::new(Duration::from_secs(60), "secret");
    let session = sessions.begin("b--x-s3", true);
    let found = Sessions::new(Duration::from_secs(1), "secret").find(&session.token).unwrap();
    assert_eq!((found.bucket, found.secret, found.read_only), (session.bucket, session.secret, true));
}

#[test]
fn changed_token_is_no_session() {
    let sessions = Sessions::new(Duration::from_secs(60), "secret");
    let token = sessions.begin("b--x-s3", true).token;
    for wrong in [token.replace(".ro.", ".rw."), token.replace("b--", "c--"), String::new(), "....".into()] {
        assert_eq!(sessions.find(&wrong).unwrap_err().code, "InvalidToken");
    }
    let other = Sessions::new(Duration::from_secs(60), "other secret");
    assert_eq!(other.find(&token).unwrap_err().code, "InvalidToken");
}

#[test]
fn session_ends() {
    let sessions = Sessions::new(Duration::ZERO, "secret");
    let token = sessions.begin("b--x-s3", false).token;
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(sessions.find(&token).unwrap_err().code, "ExpiredToken");
}
