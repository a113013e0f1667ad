// XLA runs CPU computations with denormals flushed to zero; the reference handlers must see and produce them.
#ifndef JAXQR_FFI_IEEE_SCOPE_H_
#define JAXQR_FFI_IEEE_SCOPE_H_

#include <cfenv>

namespace jaxqr {

// The default floating-point environment of this thread, from construction to destruction.
class IeeeScope {
 public:
  IeeeScope() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~IeeeScope() { std::fesetenv(&saved_); }
  IeeeScope(const IeeeScope&) = delete;
  IeeeScope& operator=(const IeeeScope&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace jaxqr

#endif  // JAXQR_FFI_IEEE_SCOPE_H_
