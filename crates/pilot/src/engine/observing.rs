//! Programs that are only observed: what they would gain.
//!
//! Owns: the forecast of a scan. Never touches: memory placement.

use heat::Heat;
use heat::units::{Bytes, HUGE_PAGE};
use kernel::target::Process;
use observe::FaultRates;
use observe::faults;

use crate::engine::family::Family;
use crate::engine::fleet::Fleet;
use crate::engine::pilot::Pilot;
use crate::engine::shared_state::ForecastState;
use crate::forecast::{Forecast, Gauged, Observation};

impl Fleet {
    /// Notes what a program would gain, with the limits that hold by default, and when it is scanned again.
    pub(super) fn note_forecast(
        &mut self,
        process: Process,
        mut heat: Heat,
        rates: &FaultRates,
        gauged: Gauged,
        pilot: &mut Pilot<'_>,
    ) {
        faults::note(rates, &mut heat);
        let (plan, estimator) = (Observation::plan_for(&heat), pilot.world.estimator(process, heat.footprint()));
        let family = Family::alone(pilot.page_tables(process), heat.footprint());
        let times = heat.times_observed();
        let of_all = |observed: Bytes| Bytes((observed.0 as f64 * times) as u64);
        let now = pilot.now();
        let member = self.members.get_mut(&process).expect("still known");
        member.reasons = plan.reasons();
        member.faults_per_second = heat.faults_per_second();
        let forecast = Forecast::of(&plan, &heat, &family, gauged, &estimator);
        member.forecast = Some(ForecastState {
            gain_percent: forecast.gain(),
            waited_share: match forecast {
                Forecast::Contended(share) => Some(share),
                Forecast::Gain(..) | Forecast::Idle => None,
            },
            would_pay_bytes: of_all(Bytes(plan.promotions().count() as u64 * HUGE_PAGE)),
            growth_bytes: of_all(plan.growth()),
        });
        member.wait_longer(now);
    }
}
