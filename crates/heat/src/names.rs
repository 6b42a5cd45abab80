//! Variants by their names, as serde spells them.
//!
//! Owns: finding a variant by its name. Never touches: the names, which each type derives and prints with its `Serialize`.

use serde::de::DeserializeOwned;
use serde::de::value::{Error, StrDeserializer};

/// The fieldless variant of this name, according to its `Deserialize`.
pub fn named<T: DeserializeOwned>(name: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<Error>::new(name)).ok()
}
