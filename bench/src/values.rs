//! Values of options: choices, times and sizes, as the user types them.
//!
//! Owns: what is accepted, and the errors for anything else. Never touches: what an option means.

/// Displays choices as the user types them.
macro_rules! shown_as_typed {
    ($choice:ty) => {
        impl std::fmt::Display for $choice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let typed = clap::ValueEnum::to_possible_value(self);
                f.pad(typed.as_ref().map_or("", |typed| typed.get_name()))
            }
        }
    };
}

/// A time as an option's value.
pub fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("'{text}' is not a time: write seconds, such as 2.5")),
    }
}

/// A number of GiB as an option's value.
pub fn gib(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(gib) if (0.0625..=1024.0).contains(&gib) => Ok(gib),
        _ => Err(format!("'{text}' is not a number of GiB from 0.0625 to 1024: write 3 or 0.5")),
    }
}
