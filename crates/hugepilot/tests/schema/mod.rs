//! Reports held against docs/reference/report.schema.json.
//!
//! Owns: reading the schema more strictly than users should: a field that it does not describe is an error here, so that none stays undocumented.
//! Never touches: what the schema says.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("../../../../docs/reference/report.schema.json");

/// The validator of each report, by its name.
static REPORTS: LazyLock<Vec<(String, Validator)>> = LazyLock::new(|| {
    let mut schema: Value = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    let mut shared = BTreeSet::new();
    collect_shared(&schema, &mut shared);
    for (name, definition) in schema["$defs"].as_object_mut().expect("definitions") {
        close(definition, shared.contains(name));
    }
    let definitions = schema["$defs"].clone();
    let reports = schema["oneOf"].as_array().expect("reports").iter().map(|report| {
        let definition = report["$ref"].as_str().and_then(|name| name.strip_prefix("#/$defs/")).expect("a definition");
        let name = definitions[definition]["properties"]["report"]["const"].as_str().expect("a name").to_owned();
        let alone = json!({ "$schema": schema["$schema"], "$ref": report["$ref"], "$defs": definitions });
        (name, jsonschema::validator_for(&alone).expect("a schema"))
    });
    reports.collect()
});

/// Panics unless the schema describes this report, and each of its fields.
pub fn check(report: &Value) {
    let name = report["report"].as_str().unwrap_or_else(|| panic!("no report: {report}"));
    let found = REPORTS.iter().find(|(known, _)| known == name);
    let (_, validator) = found.unwrap_or_else(|| panic!("the schema has no report '{name}'"));
    let errors: Vec<String> =
        validator.iter_errors(report).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{name} is not as the schema says:\n{}", errors.join("\n"));
}

/// Definitions that are a part of others, which have fields besides.
fn collect_shared(schema: &Value, shared: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let parts = fields.get("allOf").and_then(Value::as_array).into_iter().flatten();
            shared.extend(parts.filter_map(|part| Some(part["$ref"].as_str()?.strip_prefix("#/$defs/")?.to_owned())));
            fields.values().for_each(|value| collect_shared(value, shared));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_shared(value, shared)),
        _ => {}
    }
}

/// Forbids further fields in all objects, except in the outermost if it is shared.
fn close(schema: &mut Value, is_shared: bool) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| close(value, false));
            if fields.get("properties").is_some_and(Value::is_object)
                && fields.get("type") == Some(&json!("object"))
                && !is_shared
            {
                fields.insert("unevaluatedProperties".to_owned(), json!(false));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| close(value, false)),
        _ => {}
    }
}
