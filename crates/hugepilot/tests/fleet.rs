//! `hugepilot fleet`, against a server that answers as Prometheus does.
//!
//! Owns: a server for some requests. Never touches: a process.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::{Value, json};

/// A vector of PromQL.
fn vector(series: &[(Value, f64)]) -> String {
    let result: Vec<Value> =
        series.iter().map(|(labels, value)| json!({ "metric": labels, "value": [1.0, value.to_string()] })).collect();
    json!({ "status": "success", "data": { "resultType": "vector", "result": result } }).to_string()
}

/// Answers one request after the other with these, and returns its address and the paths that it was asked for.
fn server(answers: Vec<String>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let serving = std::thread::spawn(move || {
        let answer = |answer: String| {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut lines = BufReader::new(stream.try_clone().expect("the same stream")).lines();
            let asked = lines.next().expect("a request").expect("text");
            while !lines.next().expect("headers").expect("text").is_empty() {}
            let status = if answer.contains(r#""status":"error""#) { "400 Bad Request" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(answer.as_bytes())).expect("it listens");
            asked
        };
        answers.into_iter().map(answer).collect()
    });
    (url, serving)
}

fn fleet_trial(url: &str, more: &[&str]) -> Output {
    let words = ["fleet", "trial", "shop/web", "--prometheus", url, "--metric", "cpu_per_request"];
    Command::new(env!("CARGO_BIN_EXE_hugepilot")).args(words).args(more).output().expect("it runs")
}

/// So many replicas in each arm, of which the promoted ones take less.
fn answers(each: usize) -> Vec<String> {
    let labels = |at: usize, arm: Option<&str>| {
        let mut labels = json!({ "namespace": "shop", "pod": format!("web-{at}") });
        if let Some(arm) = arm {
            labels["arm"] = arm.into();
        }
        labels
    };
    let arm = |at: usize| if at < each { "promoted" } else { "observed" };
    let arms: Vec<_> = (0..2 * each).map(|at| (labels(at, Some(arm(at))), 1.0)).collect();
    let value = |at: usize| (if at < each { 0.8 } else { 1.0 }) * (1.0 + 0.01 * (at % each) as f64);
    let values: Vec<_> = (0..2 * each).map(|at| (labels(at, None), value(at))).collect();
    vec![vector(&arms), vector(&arms), vector(&values)]
}

#[test]
fn replicas_that_are_promoted_are_compared_with_the_others() {
    let (url, serving) = server(answers(6));
    let output = fleet_trial(&url, &[]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.starts_with("shop/web gains 25.0 % ("), "{output:?}");
    let asked = serving.join().expect("it served");
    assert!(asked[0].contains("hugepilot_target_promoting") && asked[0].contains("workload%3D%22web%22"), "{asked:?}");
    assert!(asked[1].contains("offset%20600000ms") && asked[2].contains("query=cpu_per_request"), "{asked:?}");
}

#[test]
fn what_prometheus_refuses_is_told() {
    let refusal = r#"{"status":"error","errorType":"bad_data","error":"1:21: parse error: unexpected <EOF>"}"#;
    let (url, serving) = server(vec![refusal.to_owned()]);
    let output = fleet_trial(&url, &[]);
    serving.join().expect("it answered");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{output:?}");
    assert!(error.contains("HTTP status 400: 1:21: parse error: unexpected <EOF>"), "{error}");
}

#[test]
fn few_replicas_and_none_tell_nothing() {
    let (url, serving) = server(answers(3));
    let output = fleet_trial(&url, &["--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert!(json["gain_percent"].is_null() && json["replicas"].as_array().is_some_and(|all| all.len() == 6), "{json}");
    serving.join().expect("it served");
    let (url, serving) = server(vec![vector(&[]), vector(&[]), vector(&[])]);
    let output = fleet_trial(&url, &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && error.contains("hugepilot.io/trial"), "{error}");
    serving.join().expect("it served");
    let output = fleet_trial("http://127.0.0.1:9", &[]);
    assert_eq!(output.status.code(), Some(1), "nobody answers: {output:?}");
}
