// SPDX-License-Identifier: Apache-2.0
#include "tests/support/power_cuts.h"

namespace cairn::testing {

PowerCuts::PowerCuts(const io::SimWorld& world) : world_(world) {
  world_.disk->set_on_operation([this](const io::SimOperation& operation) {
    if (!counting_) return;
    Cut(io::CrashChoice::KeepAll(), operation);
    Cut(io::CrashChoice::LoseAll(), operation);
    for (uint64_t seed = 0; seed < 3; ++seed) Cut(io::CrashChoice::Seeded(seed), operation);
  });
}

PowerCuts::~PowerCuts() { world_.disk->set_on_operation(nullptr); }

void PowerCuts::Cut(const io::CrashChoice& choice, const io::SimOperation& before) {
  machines_.push_back({io::CrashWorld(*world_.disk, choice), acknowledged_, before.ToString()});
}

}  // namespace cairn::testing
