// SPDX-License-Identifier: Apache-2.0
#include "cairn/copy_kv.h"

#include <utility>

#include "base/core/out_of_memory.h"
#include "base/io/real_scheduler.h"
#include "engine/device/kv_copier.h"

namespace cairn {

KvCopier::KvCopier(std::shared_ptr<const engine::KvCopierState> state) : state_(std::move(state)) {}

Result<KvCopier> KvCopier::Make(const ModelSpec& from, const ModelSpec& to,
                                std::span<const Gpu> gpus) {
  return CatchBadAlloc([&]() -> Result<KvCopier> {
    CAIRN_ASSIGN_OR_RETURN(
        std::shared_ptr<const engine::KvCopierState> state,
        engine::KvCopierState::Make(from, to, gpus, std::make_shared<io::RealScheduler>()));
    return KvCopier(std::move(state));
  });
}

Result<uint64_t> KvCopier::Copy(const KvView& from, const KvView& to,
                                const CopyKvOptions& options) const {
  return CatchBadAlloc([&] { return state_->Copy(from, to, options); });
}

Result<uint64_t> CopyKv(const ModelSpec& model, const KvView& from, const KvView& to,
                        const CopyKvOptions& options, std::span<const Gpu> gpus) {
  CAIRN_ASSIGN_OR_RETURN(const KvCopier copier, KvCopier::Make(model, model, gpus));
  return copier.Copy(from, to, options);
}

}  // namespace cairn
