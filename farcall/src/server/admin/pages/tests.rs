//! Tests of the pages with texts of hostile peers.

use proptest::prelude::*;

use super::*;
use crate::server::admin::api::{
    CodeCount, Connection, FailedCall, Method, PathCount, Sample, Setting, Snapshot,
};

/// A snapshot in which every text is `text`.
fn hostile(text: &str) -> Snapshot {
    let text = text.to_owned();
    Snapshot {
        version: text.clone(),
        connections: vec![Connection {
            peer: text.clone(),
            identity: text.clone(),
            reason: text.clone(),
            ..Connection::default()
        }],
        methods: vec![Method {
            path: text.clone(),
            codes: vec![CodeCount { code: i32::MAX, count: 1 }],
            ..Method::default()
        }],
        failed_calls: vec![FailedCall {
            method: text.clone(),
            peer: text.clone(),
            message: text.clone(),
            ..FailedCall::default()
        }],
        settings: vec![Setting { key: text.clone(), value: text, source: "code".into() }],
        ..Snapshot::default()
    }
}

/// The tags of a page.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).filter_map(|rest| rest.split('>').next()).collect()
}

proptest! {
    #[test]
    fn hostile_texts_add_no_tag(text in any::<String>(), tag in "<[a-z\"'/= ]{0,9}>?") {
        let plain = html::page(&hostile("x"), false);
        let page = html::page(&hostile(&format!("{text}{tag}")), false);
        prop_assert_eq!(tags(&plain), tags(&page));
    }

    #[test]
    fn hostile_texts_add_no_line_and_no_control_character(text in any::<String>()) {
        let plain = text::page(&hostile("x"));
        let page = text::page(&hostile(&text));
        prop_assert_eq!(plain.lines().count(), page.lines().count());
        let is_harmful = |it: char| {
            // Invisible characters, ends of lines, and those that change the direction of text.
            let is_format = matches!(
                it,
                '\u{200b}'..='\u{200f}'
                    | '\u{2028}'..='\u{202e}'
                    | '\u{2066}'..='\u{2069}'
                    | '\u{feff}'
            );
            it != '\n' && (it.is_control() || is_format)
        };
        prop_assert!(!page.contains(is_harmful));
    }
}

#[test]
fn long_texts_are_cut() {
    let page = html::page(&hostile(&"x".repeat(1 << 20)), false);
    assert!(page.len() < 20_000, "{}", page.len());
}

#[test]
fn browsers_get_html_and_others_text() {
    let accepts = |value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(value));
        prefers_html(&headers)
    };
    assert!(accepts("text/html,application/xhtml+xml,*/*;q=0.8"));
    assert!(!accepts("*/*") && !prefers_html(&HeaderMap::new()));
}

#[test]
fn plots_have_a_point_for_each_sample() {
    let path = |transport: &str, count| PathCount {
        transport: transport.to_owned(),
        fallback: "none".to_owned(),
        count,
    };
    let sample = |calls| Sample {
        calls,
        interval_ms: 5000,
        p99_us: 1500,
        paths: vec![path("rdma", 1), path("tcp", 3)],
        ..Sample::default()
    };
    let svg = plot::plots(&[sample(500), sample(250), sample(0)]);
    assert!(svg.contains("points=\"0.0,1.0 160.0,45.0 320.0,89.0\""), "{svg}");
    assert!(svg.contains("RDMA 25 %") && svg.contains("top 1.5 ms"), "{svg}");
}
