//! The pools of reserved huge pages (hugetlb): their state, their wanted size, and resizing them.
//!
//! Data flows one way here, too: [`View`] and [`Obstacles`] observe; [`changes`], [`persist()`] and [`MountOptions`] decide, as pure
//! functions; [`resize()`], [`mount()`] and [`Edit::apply`] act. Owns: sizes of pools, mounts of hugetlbfs, and files that hugepilot
//! writes below /etc. Never touches: transparent huge pages, or messages to the user, which are in `report`.
#![forbid(unsafe_code)]

mod accounts;
mod change;
mod command_line;
mod edit;
mod error;
mod mount;
mod obstacles;
mod persist;
mod request;
mod resize;
mod users;
mod view;

pub use accounts::{Owner, UnixGroup, group, owner};
pub use change::{Change, PoolSetting, changes, find};
pub use edit::Edit;
pub use error::PoolError;
pub use mount::{MountOptions, mount, place, unmount};
pub use obstacles::{Hindrance, Obstacles, ZoneObstacles};
pub use persist::{Lasting, LastingPool, NextStep, PoolSurroundings, persist};
pub use request::{Amount, SizeRequest, SizeRequestError, parse_page_size};
pub use resize::{Effort, Ended, Resized, resize};
pub use users::{User, users};
pub use view::{View, is_all_promised};

use heat::units::{BASE_PAGE, Bytes};

/// The largest block in the kernel's page allocator (`MAX_PAGE_ORDER`): larger pages must be assembled from several.
const LARGEST_BLOCK: Bytes = Bytes(BASE_PAGE << 10);

/// Whether pages of that size are larger than any free block that the kernel keeps. Once memory is in use they are hard to get, so
/// reserve them at boot. They are not available on demand.
pub fn is_giant(page_size: Bytes) -> bool {
    page_size > LARGEST_BLOCK
}
