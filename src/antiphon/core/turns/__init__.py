"""Whose turn it is where several tenants wait: at the gateway, and at each worker."""

from .priority_class import PriorityClass, Waiting
from .tenant_loads import TenantLoads
from .tenant_rounds import Tenant, TenantRounds

__all__ = ["PriorityClass", "Tenant", "TenantLoads", "TenantRounds", "Waiting"]
