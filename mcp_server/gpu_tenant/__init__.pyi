from gpu_tenant.domain.errors import TenantError as TenantError
from gpu_tenant.faces.python import Answers as Answers
from gpu_tenant.faces.python import ErrandStatus as ErrandStatus
from gpu_tenant.faces.python import Order as Order
from gpu_tenant.faces.python import RentalPlan as RentalPlan
from gpu_tenant.faces.python import Tenancy as Tenancy
from gpu_tenant.faces.python import Unanswered as Unanswered
from gpu_tenant.faces.python import open_tenancy as open_tenancy
from gpu_tenant.faces.python import run as run
from gpu_tenant.faces.python import run_async as run_async

__version__: str
